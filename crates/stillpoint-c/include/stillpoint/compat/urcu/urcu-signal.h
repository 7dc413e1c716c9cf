/* liburcu has given the signal flavour up (0.15), and Stillpoint has none. SPDX: MIT OR Apache-2.0 */
#error "Stillpoint has no signal flavour: use <urcu/urcu-memb.h>"
