import random, collections, time
from .test_traffic import *
from .test_traffic import agrees, load
def test_many(load):
    import os
    n=int(os.environ.get("N","100")); s=int(os.environ.get("S","0"))
    ev=collections.Counter(); fails=collections.Counter(); t0=time.time()
    for seed in range(s, s+n):
        rng=random.Random(seed)
        try:
            made=generated.Maker(lambda o: rng.choice(o)).made()
            agrees(load, made, lambda e: ev.update([e]))
        except BaseException as e:
            key=f"{type(e).__name__}: {str(e)[-400:]}"
            if sum(fails.values())<6:
                print("SEED",seed,type(e).__name__, str(e)[:3500]); 
                import traceback; print("".join(traceback.format_exc().splitlines(True)[-12:])[:1500])
            fails[seed]+=1
    print(ev, time.time()-t0, "failed", list(fails))
