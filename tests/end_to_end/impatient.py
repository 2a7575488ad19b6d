"""``mxclaw`` whose leases live for one second, so that a test can outwait them. A program of the tests only."""

from __future__ import annotations

from mxclaw_nb.__main__ import main
from mxclaw_nb.storage import store
from mxclaw_nb.storage.leases import LeaseTiming

if __name__ == "__main__":
    store.LeaseTiming = lambda: LeaseTiming(ttl_s=1.0, renew_s=0.3, poll_s=0.05)  # type: ignore[assignment,misc]
    main()
