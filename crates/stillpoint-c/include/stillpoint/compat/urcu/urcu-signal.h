/* liburcu dropped the signal flavour in 0.15; Stillpoint has none. SPDX: MIT OR Apache-2.0 */
#error "Stillpoint has no signal flavour: use <urcu/urcu-memb.h>"
