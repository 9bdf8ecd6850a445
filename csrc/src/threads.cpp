#include "spo/threads.hpp"
