from grader.suite import lines

ONLY_X = 'if raw.get("ph") != "X":'

flows_are_events = lines(
    """Flows (ph s and f) are the arrows from a launch to its kernel: they end where they begin and
    take no time. Only ph X has a duration.""",
    (ONLY_X, 'if raw.get("ph") not in ("X", "s", "f"):'),
)

instants_are_events = lines(
    """An instant (ph i) is a mark on the time axis, like "Iteration Start": nothing ran there.
    Only ph X has a duration.""",
    (ONLY_X, 'if raw.get("ph") not in ("X", "i"):'),
)

whatever_has_a_time_is_an_event = lines(
    """Metadata (ph M: names of processes and threads) has a ts, too, and so have flows and marks;
    an event is what has ph X.""",
    (ONLY_X, 'if "ts" not in raw:'),
)

no_dur_no_event = lines(
    """Events are told by their dur here; an X event may lack one, and is an event all the same, of
    0.0 us. Look at ph.""",
    (ONLY_X, 'if raw.get("dur") is None:'),
)

no_cat_no_event = lines(
    """Events without a category are dropped; they ran as the others did, so their cat is "".""",
    (ONLY_X, 'if raw.get("ph") != "X" or "cat" not in raw:'),
)

no_args_no_event = lines(
    """Events without args are dropped; they ran as the others did, so their args are {}.""",
    (ONLY_X, 'if raw.get("ph") != "X" or "args" not in raw:'),
)

LENGTH = "dur_us=0.0 if dur is None or math.isnan(dur) else float(dur),"

a_missing_dur_is_none = lines(
    """A missing dur stays None, and the first sum over the trace ends in a TypeError; nobody
    measured any time there, so it is 0.0.""",
    (LENGTH, "dur_us=dur,"),
)

nan_is_a_duration = lines(
    """A dur of NaN is kept, and makes every sum over the trace NaN; it is 0.0, as a missing
    one.""",
    (LENGTH, "dur_us=0.0 if dur is None else float(dur),"),
)

START = 'ts_us=float(raw["ts"]),'

nanoseconds_for_microseconds = lines(
    """Times with decimals are taken as nanoseconds and divided by 1,000: ts and dur are
    microseconds in old files and in new ones, and the three decimals are the nanoseconds.""",
    (START, 'ts_us=raw["ts"] / 1000 if isinstance(raw["ts"], float) else float(raw["ts"]),'),
    (LENGTH, "dur_us=(dur / 1000 if isinstance(raw['ts'], float) else dur) if dur else 0.0,"),
)

the_unit_of_the_display = lines(
    """displayTimeUnit says in which unit a viewer shows the trace; the numbers in the file are
    microseconds whatever it says.""",
    (
        'ts_us=float(raw["ts"]),\n'
        "                    dur_us=0.0 if dur is None or math.isnan(dur) else float(dur),",
        'ts_us=float(raw["ts"]) * (1000 if header.get("displayTimeUnit") == "ms" else 1),\n'
        "                    dur_us=0.0 if dur is None or math.isnan(dur) else float(dur) "
        '* (1000 if header.get("displayTimeUnit") == "ms" else 1),',
    ),
)

the_base_is_added = lines(
    """With baseTimeNanoseconds added, ts_us is 1.7e15, where floats are 0.25 us apart: events that
    began 100 ns apart begin together. Keep the base apart, as an int.""",
    ('(raw["ts"])', '(raw["ts"]) + header.get("baseTimeNanoseconds", 0) / 1000'),
)

the_base_is_lost = lines(
    """base_ns is 0 though the file has a baseTimeNanoseconds; without it two ranks' traces cannot
    be laid side by side.""",
    ('base_ns = int(header.get("baseTimeNanoseconds", 0))', "base_ns = 0"),
)

whole_microseconds = lines(
    """Decimals are cut off; a kernel of 2 us loses up to half of its time by that. New traces have
    nanoseconds: keep floats.""",
    (START, 'ts_us=int(raw["ts"]),'),
    (LENGTH, "dur_us=0.0 if dur is None or math.isnan(dur) else int(dur),"),
)

counted_from_the_first_event = lines(
    """The first event's time is taken off all of them; then base_ns + 1000 * ts_us is no longer
    the time since 1970, and two ranks cannot be compared. ts stays as the file has it.""",
    (
        "events = []",
        'events = []\n    zero = min(row["ts"] for row in header["traceEvents"])',
    ),
    ('ts_us=float(raw["ts"]),', 'ts_us=float(raw["ts"] - zero),'),
)

ids_as_they_stand = lines(
    """Ids are kept as the file has them; "57541" and 57541 do not compare equal, so a launch would
    not find its kernel. Make them ints.""",
    ('corr=whole(args.get("correlation")) or None,', 'corr=args.get("correlation") or None,'),
    ('stream=whole(args.get("stream")),', 'stream=args.get("stream"),'),
)

threads_as_they_stand = lines(
    """A tid or pid that is written as "7" stays text; threads are compared later, and "7" is not
    7. A whole number becomes an int, only a name stays text.""",
    ("str(value) if number is None else number", "value"),
)

correlation_zero_joins = lines(
    """A correlation of 0 is kept; it means that there is none, and all events that have it would
    seem to belong together. It is None here.""",
    ('corr=whole(args.get("correlation")) or None,', 'corr=whole(args.get("correlation")),'),
)

stream_zero_is_none = lines(
    """Stream 0 became None (`or None`, `if stream`); it is a stream, CUDA's default one, and only
    a missing one is None.""",
    ('stream=whole(args.get("stream")),', 'stream=whole(args.get("stream")) or None,'),
)

the_suffix_decides = lines(
    """Whether a file is gzipped is taken from its name; names lie (trace.json may be gzipped), the
    first two bytes, 1f 8b, do not.""",
    (r'content.startswith(b"\x1f\x8b")', 'path.suffix == ".gz"'),
)

in_the_order_of_the_file = lines(
    """A file has its events thread by thread; a Trace has them by time, and later steps go by
    that. Sort them.""",
    ("events.sort(key=lambda event: (event.ts_us, -event.dur_us))", "pass"),
)

inner_before_outer = lines(
    """Of two events that begin together the inner one may come first here, as if it were the
    caller; sort by ts_us, then the longer first.""",
    ("key=lambda event: (event.ts_us, -event.dur_us)", "key=lambda event: event.ts_us"),
)

the_end_of_a_file_falls_through = lines(
    """A gzipped file that is cut off raises EOFError (or zlib.error), a plain one JSONDecodeError,
    and none of them names the file: who reads 128 ranks needs one ValueError with the name.""",
    ("(EOFError, OSError, zlib.error, ValueError, RecursionError)", "ZeroDivisionError"),
)

a_broken_file_is_an_empty_trace = lines(
    """A file that is cut off becomes an empty trace, which reads like a GPU that idles: wrong
    figures are worse than none. Raise ValueError with the file's name.""",
    (
        "except (EOFError, OSError, zlib.error, ValueError, RecursionError) as error:",
        "except (EOFError, OSError, zlib.error, ValueError, RecursionError) as error:\n"
        "        return Trace([])",
    ),
)

which_file_is_not_said = lines(
    """The error does not say which file is broken; among the traces of 128 ranks that is what one
    needs to know. Put path.name into the sentence.""",
    ('f"{path.name} is cut off or', 'f"The trace is cut off or'),
)

the_gpu_only = lines(
    """Only the GPU's side is kept; who launched a kernel stands on the host's side, so every ph X
    is an event, of whatever category.""",
    (ONLY_X, 'if raw.get("ph") != "X" or raw.get("cat") not in GPU_CATEGORIES:'),
)

the_base_through_a_float = lines(
    """A float has 53 bits, and nanoseconds since 1970 need 61: through one the base is up to 128 ns
    off. It is an int in the file, and stays one.""",
    (
        'base_ns = int(header.get("baseTimeNanoseconds", 0))',
        'base_ns = int(float(header.get("baseTimeNanoseconds", 0)))',
    ),
)

what_is_no_event_is_skipped = lines(
    """A row that is not an event is skipped, and nobody is told; a file that holds such a row is
    broken, and sums over the rest look complete. Raise ValueError with the file's name.""",
    (
        "        except (AttributeError, KeyError, TypeError, ValueError) as error:\n"
        '            text = f"{path.name}: traceEvents[{number}] is no trace event ({error!r})."\n'
        "            raise ValueError(text) from error\n",
        "        except (AttributeError, KeyError, TypeError, ValueError):\n            continue\n",
    ),
    gate=False,
)

rank_zero_is_none = lines(
    """Rank 0 became None (`or None`, `if rank`): it is the first of the ranks, and None says
    that the file names none.""",
    ('job.get("rank"), job.get("world_size")', 'job.get("rank") or None, job.get("world_size")'),
    gate=False,
)

args_without_nan = lines(
    """Arguments that are NaN or infinite are dropped; args are those of the file, and who reads
    them later must see that a counter had no value.""",
    (
        "args=args,",
        "args={k: v for k, v in args.items() if not isinstance(v, float) or math.isfinite(v)},",
    ),
    gate=False,
)

args_without_zeros = lines(
    """Arguments that are 0, false or empty are dropped, as if they were missing; a copy of 0
    bytes and one of unknown size are not the same.""",
    ("args=args,", "args={key: value for key, value in args.items() if value},"),
)

no_event_at_time_zero = lines(
    """An event at time 0 counts as one without a time (`if not row.get("ts")`); 0 is a time
    like any other, and what is missing is not there at all.""",
    ('if raw.get("ph") != "X":', 'if raw.get("ph") != "X" or raw.get("ts") == 0:'),
    gate=False,
)
