#define URCU_API_MAP
#include <urcu/urcu-qsbr.h>

#include "hold.h"
