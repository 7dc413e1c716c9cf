#define URCU_API_MAP
#include <urcu/urcu-mb.h>

#include "hold.h"
