#define URCU_API_MAP
#include <urcu/urcu-memb.h>

#include "hold.h"
