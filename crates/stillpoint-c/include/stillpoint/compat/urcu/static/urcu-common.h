/* liburcu has its readers' state here; Stillpoint only includes the same headers. SPDX: MIT OR Apache-2.0 */
#include <urcu/stillpoint/static.h>
