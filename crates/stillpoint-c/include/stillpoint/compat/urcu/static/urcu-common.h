/* Of what liburcu has here, the state of its readers, there is nothing: only what comes along. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>
