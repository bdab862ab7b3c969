// One token's attention over the keys and values of one head. Pure function; thread-safe. Torch-free.
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace layercast {

// Keys or values of one head: `count` rows that begin `stride` floats apart and are zero-padded to whole vectors.
// Value; memory borrowed.
struct HeadRows {
  const float* first = nullptr;
  std::size_t stride = 0;
  std::size_t count = 0;
};

struct AttendOptions {
  float scale = 1.0F;          // multiplies the product of query and key
  float logit_softcap = 0.0F;  // 0: none
  // A score that belongs to no key: it takes its share of the softmax but adds no value.
  float sink = -std::numeric_limits<float>::infinity();
};

// out = softmax(scores) . values in fp32, where the scores are scale * keys . query, capped if asked for. `query` and
// `out` are padded like the rows, which are `padded` floats long. `scores` is scratch.
void Attend(const float* query, const HeadRows& keys, const HeadRows& values, const AttendOptions& options,
            std::size_t padded, std::vector<float>& scores, float* out);

}  // namespace layercast
