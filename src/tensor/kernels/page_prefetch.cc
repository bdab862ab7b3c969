#include "src/tensor/kernels/page_prefetch.h"

namespace layercast {

std::size_t PagesAtOnce() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0 ? 4 : 1;
#else
  return 1;
#endif
}

}  // namespace layercast
