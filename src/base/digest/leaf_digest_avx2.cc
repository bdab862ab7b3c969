// Compiled with AVX2, which this processor may lack: includes nothing whose functions the linker could put in the place
// of others' copies of them.
#include "src/base/digest/leaf_digest.h"

#ifdef __x86_64__

#define XXH_VECTOR XXH_AVX2  // also where the build's own flags allow more
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace layercast {

LeafHash HashLeafByAvx2(const void* bytes, std::size_t count) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, count);
  return {hash.high64, hash.low64};
}

}  // namespace layercast

#endif
