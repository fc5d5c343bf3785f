"""Process settings: one frozen object from `penstock.toml` < `PENSTOCK_*` < the command line.

Policy of queues, topics, pools and the like is not here: that is rows, see `penstock apply`.
"""

from penstock.kernel.settings.load import DEFAULT_FILE, load_settings, with_values
from penstock.kernel.settings.names import PREFIX, PROCESS_VARIABLES
from penstock.kernel.settings.spec import Setting
from penstock.kernel.settings.table import TABLE, Settings

__all__ = [
    "DEFAULT_FILE",
    "PREFIX",
    "PROCESS_VARIABLES",
    "TABLE",
    "Setting",
    "Settings",
    "load_settings",
    "with_values",
]
