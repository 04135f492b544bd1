"""Another way: layers, tensors, recipes and claims are tables of SQLite, each ledger a query."""

import contextlib
import math
import sqlite3
from dataclasses import asdict
from fractions import Fraction

from types_lab01 import Finding, Ledger

# A matrix reads `reads` channels and writes `writes`; its bias reads one more. A norm reads one.
_MODEL = """
CREATE VIEW attention(name, reads, writes, bias) AS
    SELECT 'q', hidden_size, num_attention_heads * head_dim, qkv_bias
        FROM config WHERE kv_lora_rank IS NULL
    UNION ALL SELECT 'k', hidden_size, num_key_value_heads * head_dim, qkv_bias
        FROM config WHERE kv_lora_rank IS NULL
    UNION ALL SELECT 'v', hidden_size, num_key_value_heads * head_dim, qkv_bias
        FROM config WHERE kv_lora_rank IS NULL
    UNION ALL SELECT 'o', num_attention_heads * head_dim, hidden_size, o_bias
        FROM config WHERE kv_lora_rank IS NULL
    UNION ALL SELECT 'q norm, k norm', 1, 2 * head_dim, 0
        FROM config WHERE kv_lora_rank IS NULL AND qk_norm
    UNION ALL SELECT 'q', coalesce(q_lora_rank, hidden_size),
            num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim), 0
        FROM config WHERE kv_lora_rank IS NOT NULL
    UNION ALL SELECT 'q down and its norm', hidden_size + 1, q_lora_rank, 0
        FROM config WHERE kv_lora_rank IS NOT NULL AND q_lora_rank IS NOT NULL
    UNION ALL SELECT 'kv down', hidden_size, kv_lora_rank + qk_rope_head_dim, 0
        FROM config WHERE kv_lora_rank IS NOT NULL
    UNION ALL SELECT 'kv norm', 1, kv_lora_rank, 0
        FROM config WHERE kv_lora_rank IS NOT NULL
    UNION ALL SELECT 'kv up', kv_lora_rank,
            num_attention_heads * (qk_nope_head_dim + v_head_dim), 0
        FROM config WHERE kv_lora_rank IS NOT NULL
    UNION ALL SELECT 'o', num_attention_heads * v_head_dim, hidden_size, 0
        FROM config WHERE kv_lora_rank IS NOT NULL;

CREATE VIEW mlp(routes, copies, used, reads, writes, bias) AS
    WITH kind(routes, copies, used, width) AS (
        SELECT 0, 1, 1, intermediate_size FROM config
        UNION ALL SELECT 1, n_shared_experts + num_experts,
            n_shared_experts + num_experts_per_tok, moe_intermediate_size FROM config
    )
    SELECT routes, copies, used, hidden_size, width, mlp_bias FROM kind, config
    UNION ALL SELECT routes, copies, used, hidden_size, width, mlp_bias
        FROM kind, config WHERE gated_mlp
    UNION ALL SELECT routes, copies, used, width, hidden_size, mlp_bias FROM kind, config
    UNION ALL SELECT 1, 1, 1, hidden_size, num_experts, router_bias FROM config;

CREATE VIEW outside(name, reads, writes, bias) AS
    SELECT 'embedding', vocab_size, hidden_size, 0 FROM config
    UNION ALL SELECT 'head', vocab_size, hidden_size, 0 FROM config WHERE NOT tie_word_embeddings
    UNION ALL SELECT 'positions', position_rows, hidden_size, 0 FROM config
    UNION ALL SELECT 'last norm', 1, hidden_size, norm_bias FROM config;

CREATE VIEW ffn(routes, params, used) AS
    SELECT routes, sum(copies * writes * (reads + bias)), sum(used * writes * (reads + bias))
        FROM mlp GROUP BY routes;

CREATE VIEW total(params, used) AS
    WITH everywhere(params) AS (
        SELECT (SELECT sum(writes * (reads + bias)) FROM attention)
            + norms_per_layer * hidden_size * (1 + norm_bias) FROM config
    )
    SELECT outer_params + sum(everywhere.params + ffn.params),
        outer_params + sum(everywhere.params + ffn.used)
        FROM layer JOIN ffn USING (routes), everywhere,
            (SELECT sum(writes * (reads + bias)) AS outer_params FROM outside);

CREATE VIEW cached(width) AS
    SELECT CASE WHEN kv_lora_rank IS NULL THEN 2 * num_key_value_heads * head_dim
        ELSE kv_lora_rank + qk_rope_head_dim END FROM config;
"""


@contextlib.contextmanager
def _tables(script=""):
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.executescript(script)
        yield database


@contextlib.contextmanager
def _model(config):
    fields = {name: x for name, x in asdict(config).items() if not isinstance(x, tuple)}
    with _tables(f"CREATE TABLE config({', '.join(fields)});{_MODEL}") as database:
        marks = ", ".join("?" * len(fields))
        database.execute(f"INSERT INTO config VALUES ({marks})", tuple(fields.values()))
        database.execute("CREATE TABLE layer(number, routes, sees)")
        database.executemany(
            "INSERT INTO layer VALUES (?, ?, ?)",
            [
                (i, config.is_moe_layer(i), config.window(i))
                for i in range(config.num_hidden_layers)
            ],
        )
        yield database


def _ask(config, query, *values):
    with _model(config) as database:
        return database.execute(query, values).fetchone()[0]


def simple_ledger(
    layers, hidden, ffn_multiplier, vocab, batch, seq, heads, head_dim, precision_bytes, adam_bytes
):
    with _tables() as database:
        row = database.execute(
            """
            WITH model(params, cached) AS (
                SELECT :layers * :hidden * :hidden * (4 + :ffn) + :vocab * :hidden,
                    2 * :layers * :heads * :head_dim * :batch * :seq
            )
            SELECT params, params * :bytes, params * :bytes, params * :adam, 0, cached * :bytes
                FROM model
            """,
            {
                "layers": layers,
                "hidden": hidden,
                "ffn": ffn_multiplier,
                "vocab": vocab,
                "heads": heads,
                "head_dim": head_dim,
                "batch": batch,
                "seq": seq,
                "bytes": precision_bytes,
                "adam": adam_bytes,
            },
        ).fetchone()
    return Ledger(*row)


def simple_activation_bytes(batch, seq, layers, hidden, precision_bytes=2, scale=7.0):
    factors = (batch, seq, layers, hidden, precision_bytes, scale)
    with _tables() as database:
        return database.execute("SELECT 1.0 * ? * ? * ? * ? * ? * ?", factors).fetchone()[0]


def attention_params(config):
    return _ask(config, "SELECT sum(writes * (reads + bias)) FROM attention")


def ffn_params(config, layer=0, active=False):
    column = "used" if active else "params"
    return _ask(config, f"SELECT {column} FROM ffn WHERE routes = ?", config.is_moe_layer(layer))


def total_params(config, active=False):
    return _ask(config, f"SELECT {'used' if active else 'params'} FROM total")


_RECIPES = """
CREATE TABLE state(recipe, term, bytes, block);
INSERT INTO state VALUES
    ('fp32', 'weights', 4, NULL), ('fp32', 'gradients', 4, NULL),
    ('fp32', 'optimizer', 4, NULL), ('fp32', 'optimizer', 4, NULL),
    ('bf16_mixed', 'weights', 2, NULL), ('bf16_mixed', 'gradients', 2, NULL),
    ('bf16_mixed', 'optimizer', 4, NULL), ('bf16_mixed', 'optimizer', 4, NULL),
    ('bf16_mixed', 'optimizer', 4, NULL),
    ('bf16_fp32grads', 'weights', 2, NULL), ('bf16_fp32grads', 'gradients', 4, NULL),
    ('bf16_fp32grads', 'optimizer', 4, NULL), ('bf16_fp32grads', 'optimizer', 4, NULL),
    ('bf16_fp32grads', 'optimizer', 4, NULL),
    ('bf16_pure', 'weights', 2, NULL), ('bf16_pure', 'gradients', 2, NULL),
    ('bf16_pure', 'optimizer', 2, NULL), ('bf16_pure', 'optimizer', 2, NULL),
    ('adam8bit', 'weights', 2, NULL), ('adam8bit', 'gradients', 2, NULL),
    ('adam8bit', 'optimizer', 1, NULL), ('adam8bit', 'optimizer', 1, NULL),
    ('adam8bit', 'optimizer', 4, 256), ('adam8bit', 'optimizer', 4, 256);
"""


def training_state_bytes(n_params, recipe):
    with _tables(_RECIPES) as database:
        known = [name for (name,) in database.execute("SELECT DISTINCT recipe FROM state")]
        if recipe not in known:
            raise ValueError(f"recipe {recipe!r} is unknown; known are {known}")
        # Numbers are counted in Python: a block that is not full has a scale all the same.
        database.create_function("numbers", 1, lambda block: math.ceil(n_params / (block or 1)))
        rows = database.execute(
            "SELECT term, sum(bytes * CASE WHEN block IS NULL THEN ? ELSE numbers(block) END) "
            "FROM state WHERE recipe = ? GROUP BY term",
            (n_params, recipe),
        )
        return Ledger(params=n_params, **dict(rows))


def kv_bytes_per_token(config, dtype_bytes=2):
    return _ask(config, "SELECT sum(width) * ? FROM cached, layer", dtype_bytes)


def kv_cache_bytes(config, batch, seq, dtype_bytes=2):
    query = "SELECT ?1 * ?3 * sum(width * min(?2, coalesce(sees, ?2))) FROM cached, layer"
    return _ask(config, query, batch, seq, dtype_bytes)


# What a layer keeps, in 16-bit: `units` of `bytes`, split by heads or columns or whole, and how
# far recomputation has to go (1 selective, 2 full) to drop it.
_KEPT = """
CREATE TABLE kept(name, bytes, units, split, of_dropout, only_with, dropped_at);
INSERT INTO kept VALUES
    ('first norm: the layer''s input', 2, :hidden, 0, 0, NULL, 3),
    ('second norm', 2, :hidden, 0, 0, NULL, 2),
    ('QKV', 2, :hidden, 0, 0, NULL, 2),
    ('MLP', 2, :hidden, 0, 0, NULL, 2),
    ('residual masks', 2, :hidden, 0, 1, NULL, 2),
    ('Q, K, V', 6, :hidden, 1, 0, NULL, 2),
    ('output projection', 2, :hidden, 1, 0, NULL, 2),
    ('GELU', 8, :hidden, 1, 0, NULL, 2),
    ('second linear', 8, :hidden, 1, 0, NULL, 2),
    ('probabilities', 2, :heads * :seq, 1, 0, 'eager', 1),
    ('their mask', 1, :heads * :seq, 1, 1, 'eager', 1),
    ('what dropout leaves of them', 2, :heads * :seq, 1, 1, 'eager', 1),
    ('log-sum-exp', 4, :heads, 1, 0, 'sdpa', 1)
"""


def activation_bytes(
    config,
    batch,
    seq,
    attention="eager",
    dropout=True,
    recompute="none",
    tp=1,
    sp=False,
    logits=False,
):
    if attention not in ("eager", "sdpa"):
        raise ValueError(f"attention {attention!r}")
    levels = {"none": 0, "selective": 1, "full": 2}
    if recompute not in levels:
        raise ValueError(f"recompute {recompute!r}")
    facts = {
        "hidden": config.hidden_size,
        "heads": config.num_attention_heads,
        "layers": config.num_hidden_layers,
        "end": 4 * config.vocab_size if logits else 0,
        "tokens": batch * seq,
        "seq": seq,
        "attention": attention,
        "dropout": dropout,
        "level": levels[recompute],
        "split": tp,
        "whole": tp if sp else 1,
    }
    with _tables() as database:
        create, insert = _KEPT.split(";\n", 1)
        database.execute(create)
        database.execute(insert, facts)
        query = """
            SELECT :tokens * (
                :layers * sum(1.0 * bytes * units / CASE split WHEN 1 THEN :split ELSE :whole END)
                + 1.0 * :end / :split
            )
            FROM kept
            WHERE dropped_at > :level AND of_dropout <= :dropout
                AND coalesce(only_with, :attention) = :attention
        """
        return database.execute(query, facts).fetchone()[0]


def inference_ledger(config, batch, seq, dtype_bytes=2, overhead_bytes=0):
    query = """
        SELECT params, params * :bytes, 0, 0, 0, (
            SELECT :batch * :bytes * sum(width * min(:seq, coalesce(sees, :seq)))
            FROM cached, layer
        ), 4 * :batch * vocab_size + :overhead
        FROM total, config
    """
    values = {"batch": batch, "seq": seq, "bytes": dtype_bytes, "overhead": overhead_bytes}
    with _model(config) as database:
        return Ledger(*database.execute(query, values).fetchone())


def max_batch(config, gpu_bytes, seq, dtype_bytes=2, overhead_bytes=0):
    def fits(batch):
        return inference_ledger(config, batch, seq, dtype_bytes, overhead_bytes).total <= gpu_bytes

    first = inference_ledger(config, 1, seq, dtype_bytes, overhead_bytes)
    each = first.kv_cache + 4 * config.vocab_size
    # A guess in floats, then the ledger itself decides.
    batch = max(0, round((gpu_bytes - first.total) / each) + 1)
    while batch and not fits(batch):
        batch -= 1
    while fits(batch + 1):
        batch += 1
    return batch


class SavedBytes:
    def __init__(self, exclude=()):
        self._outside = [tensor.untyped_storage() for tensor in exclude]
        self._inside = []  # (storage, its bytes); held, so that its identity stays its own

    @property
    def bytes(self):
        return sum(size for _, size in self._inside)

    def __enter__(self):
        self._block = self._watched()
        return self._block.__enter__()

    def __exit__(self, *error):
        return self._block.__exit__(*error)

    @contextlib.contextmanager
    def _watched(self):
        from torch.autograd.graph import saved_tensors_hooks

        known = {storage._cdata for storage in self._outside}

        def pack(tensor):
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                self._inside.append((storage, storage.nbytes()))
            return tensor

        def unpack(tensor):
            return tensor

        with saved_tensors_hooks(pack, unpack):
            yield self


_LEVERS = """
CREATE TABLE lever(position, term, lever);
INSERT INTO lever VALUES
    (1, 'weights', 'ZeRO'), (2, 'gradients', 'ZeRO'), (3, 'optimizer', 'ZeRO'),
    (4, 'activations', 'checkpointing'), (5, 'kv_cache', 'paging'), (6, 'other', 'chunking');
CREATE TABLE size(term, bytes);
CREATE VIEW ranked AS
    SELECT term, CASE WHEN term = 'weights' AND NOT EXISTS (
            SELECT 1 FROM size WHERE term IN ('gradients', 'optimizer') AND bytes > 0
        ) THEN 'quantization' ELSE lever END
    FROM lever JOIN size USING (term) WHERE bytes > 0 ORDER BY bytes DESC, position;
"""


def bottleneck(ledger):
    with _tables(_LEVERS) as database:
        database.executemany("INSERT INTO size VALUES (?, ?)", ledger.terms().items())
        largest = database.execute("SELECT * FROM ranked LIMIT 1").fetchone()
    if largest is None:
        raise ValueError("no term of the ledger has any bytes")
    return largest


_AUDIT = """
WITH bytes(weights, states, activations, cache) AS (
    SELECT :params * :precision, :params * :states,
        1.0 * :scale * :precision * :batch * :seq * :layers * :hidden,
        2.0 * :precision * :batch * :seq * :layers * :heads * :head_dim
), figure(quantity, actual) AS (
    SELECT 'training_gib', (states + activations) / 1073741824 FROM bytes
    UNION ALL SELECT 'inference_gib', (weights + cache) / 1073741824 FROM bytes
    UNION ALL SELECT 'context_doubling', (weights + 2 * cache) / (weights + cache) FROM bytes
    UNION ALL SELECT 'int4_weight_fraction', 4.0 / (8 * :precision)
)
SELECT number, actual FROM claim LEFT JOIN figure USING (quantity)
WHERE actual IS NULL OR actual NOT BETWEEN low AND high
ORDER BY number
"""


def audit(notebook):
    n = notebook
    facts = {
        "params": n.params,
        "precision": n.precision_bytes,
        "states": n.state_bytes,
        "scale": n.activation_scale,
        "batch": n.batch,
        "seq": n.seq,
        "layers": n.layers,
        "hidden": n.hidden,
        "heads": n.heads,
        "head_dim": n.head_dim,
    }
    with _tables("CREATE TABLE claim(number, quantity, low, high)") as database:
        rows = [(i, claim.quantity, claim.low, claim.high) for i, claim in enumerate(n.claims)]
        database.executemany("INSERT INTO claim VALUES (?, ?, ?, ?)", rows)
        wrong = database.execute(_AUDIT, facts).fetchall()
    findings = []
    for number, actual in wrong:
        claim = n.claims[number]
        if actual is None:
            raise ValueError(f"no notebook computes {claim.quantity!r}")
        findings.append(Finding(claim.quantity, claim.low, claim.high, actual))
    return findings


def fits_where(ledger, gpu_bytes, at_least_bytes=0):
    sizes = [*ledger.terms().values(), gpu_bytes, at_least_bytes]
    ratios = [Fraction(size) for size in sizes]
    # In units in which every size is a whole number, no rounding is left.
    unit = math.lcm(*(ratio.denominator for ratio in ratios))
    weights, gradients, optimizer, *others, most, least = (int(x * unit) for x in ratios)
    sharded, whole = weights + gradients + optimizer, sum(others)
    if not sharded:
        return (1, None) if least <= whole <= most else None
    if whole >= most:
        return None
    first = max(1, -(-sharded // (most - whole)))
    if whole >= least:
        return first, None
    last = sharded // (least - whole)
    return (first, last) if first <= last else None
