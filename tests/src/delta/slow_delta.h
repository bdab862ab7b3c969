// Deltas slowly and obviously: what changed, found element by element, and the bytes of a frame read as FORMAT.md says.
// The codec is compared with both.
#pragma once

#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace layercast::test {

using Bytes = std::vector<std::byte>;
using Changes = std::map<std::size_t, std::uint64_t>;  // element to step, modulo 2^bits; those of step 0 are left out

inline std::uint64_t SlowElement(std::span<const std::byte> bytes, std::size_t element, std::size_t element_bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = element_bytes; i-- > 0;) {
    value = value * 256 + std::to_integer<std::uint64_t>(bytes[element * element_bytes + i]);
  }
  return value;
}

// ---- the reference: ten lines --------------------------------------------------------------------------------------
// The place of sign and magnitude in order: half + m for m, half - 1 - m for -m.
inline std::uint64_t SlowPlace(std::uint64_t bits, std::uint64_t half) {
  return bits < half ? half + bits : half - 1 - (bits - half);
}
inline Changes SlowChanges(std::span<const std::byte> base, std::span<const std::byte> next,
                           std::size_t element_bytes) {
  const std::uint64_t half = std::uint64_t{1} << (8 * element_bytes - 1);
  Changes changes;
  for (std::size_t i = 0; i < base.size() / element_bytes; ++i) {
    const std::uint64_t from = SlowPlace(SlowElement(base, i, element_bytes), half);
    const std::uint64_t to = SlowPlace(SlowElement(next, i, element_bytes), half);
    if (from != to) changes[i] = (to - from) % (2 * half);
  }
  return changes;
}

// ---- frames, as FORMAT.md has them ---------------------------------------------------------------------------------
class SlowFrame {
 public:
  explicit SlowFrame(std::span<const std::byte> frame) : frame_(frame) {
    at_ = 5;
    element_bytes = Number(1);
    form = Number(1);
    at_ = 8;
    elements = Number(8);
    changed = Number(8);
    parameter = Number(8);
    at_ = 80;
  }

  // The steps that the frame says. `base` is looked at for two lists alone.
  Changes Read(std::span<const std::byte> base) {
    Changes changes;
    if (form == 2) {
      const Bytes codes = Stream();
      for (const std::uint64_t step : Steps(codes, Stream())) AddTo(changes, parameter++, step);
    } else if (form == 3) {
      ReadList(changes, [](std::size_t i) { return i; });
    } else if (form == 4) {
      const Bytes bitmap = Stream();
      const Bytes codes = Stream();
      const std::vector<std::uint64_t> steps = Steps(codes, Stream());
      std::size_t step = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        if ((std::to_integer<unsigned>(bitmap[i / 8]) >> i % 8 & 1) != 0) AddTo(changes, i, steps.at(step++));
      }
    } else if (form == 5) {
      std::vector<std::size_t> small;
      const std::uint64_t half = std::uint64_t{1} << (8 * element_bytes - 1);
      for (std::size_t i = 0; i < elements; ++i) {
        if (SlowElement(base, i, element_bytes) % half < parameter) small.push_back(i);
      }
      ReadList(changes, [&](std::size_t i) { return small.at(i); });
      ReadList(changes, [](std::size_t i) { return i; });
    }
    if (at_ != frame_.size()) throw std::runtime_error("bytes are left");
    return changes;
  }

  Bytes ReadDense() {
    const bool planes = frame_[at_] == std::byte{2};
    const Bytes stream = Stream();
    Bytes plain(stream.size());
    for (std::size_t i = 0; i < stream.size(); ++i) {
      plain[i] = planes ? stream[i % element_bytes * elements + i / element_bytes] : stream[i];
    }
    return plain;
  }

  std::size_t element_bytes = 0;
  std::size_t form = 0;
  std::size_t elements = 0;
  std::size_t changed = 0;
  std::size_t parameter = 0;

 private:
  std::uint64_t Number(std::size_t bytes) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes; ++i) value |= std::to_integer<std::uint64_t>(frame_[at_++]) << (8 * i);
    return value;
  }

  Bytes Stream() {
    const std::uint64_t coding = Number(1);
    Bytes stream(Number(8));
    const std::size_t end = at_ + 8 + static_cast<std::size_t>(Number(8));
    if (coding == 0) {
      std::copy_n(frame_.begin() + static_cast<std::ptrdiff_t>(at_), stream.size(), stream.begin());
    } else {
      for (std::size_t done = 0; done < stream.size(); done += 1U << 20) {
        const std::uint64_t size = Number(4);
        ZSTD_decompress(stream.data() + done, stream.size() - done, &frame_[at_], size);
        at_ += size;
      }
    }
    at_ = end;
    return stream;
  }

  std::vector<std::uint64_t> Steps(const Bytes& codes, const Bytes& wide) const {
    std::vector<std::uint64_t> steps;
    std::size_t next_wide = 0;
    for (const std::byte code : codes) {
      std::uint64_t zigzag = std::to_integer<std::uint64_t>(code);
      if (zigzag == 255) zigzag = SlowElement(wide, next_wide++, element_bytes);
      const std::uint64_t all = std::uint64_t{1} << (8 * element_bytes);
      steps.push_back((zigzag % 2 == 0 ? zigzag / 2 : all - (zigzag + 1) / 2) % all);
    }
    return steps;
  }

  template <class ElementOf>
  void ReadList(Changes& changes, const ElementOf& element_of) {
    const std::uint64_t width = Number(1);
    const Bytes high = Stream();
    const Bytes low = Stream();
    const Bytes codes = Stream();
    const std::vector<std::uint64_t> steps = Steps(codes, Stream());
    std::size_t position = 0;
    std::size_t step = 0;
    for (const std::byte byte : high) {
      position += std::to_integer<std::size_t>(byte) * (width == 2 ? 256 : 1);
      if (byte == std::byte{255}) continue;
      if (width == 2) position += std::to_integer<std::size_t>(low.at(step));
      AddTo(changes, element_of(position++), steps.at(step++));
    }
  }

  static void AddTo(Changes& changes, std::size_t element, std::uint64_t step) {
    if (step != 0) changes[element] = step;
  }

  std::span<const std::byte> frame_;
  std::size_t at_ = 0;
};

// ---- versions to compare -------------------------------------------------------------------------------------------
// What changes, and how. Value.
struct Drift {
  std::size_t element_bytes = 2;
  std::size_t elements = 0;
  double density = 0.0;
  enum class Kind { kRandomBits, kSmallSteps, kSmallFirst, kCluster } kind = Kind::kRandomBits;
};

struct TwoVersions {
  Bytes base;
  Bytes next;
};

// Random bits have every pattern: NaN with payloads, infinities, both zeros. The others have weights around 2^-6.
inline TwoVersions MakeVersions(const Drift& drift, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto chance = [&] { return static_cast<double>(random()) / 4294967296.0; };
  TwoVersions versions;
  versions.base.resize(drift.elements * drift.element_bytes);
  for (std::byte& byte : versions.base) byte = static_cast<std::byte>(random());
  if (drift.element_bytes == 2 && drift.kind != Drift::Kind::kRandomBits) {
    for (std::size_t i = 0; i < drift.elements; ++i) {  // bf16: binades thin out downwards, as those of a bell curve do
      const auto exponent =
          static_cast<std::uint16_t>(121 - std::min(60, static_cast<int>(-std::log2(chance() + 1e-9))));
      const auto bits = static_cast<std::uint16_t>((random() & 0x807f) | exponent << 7);
      std::memcpy(&versions.base[2 * i], &bits, 2);
    }
  }
  versions.next = versions.base;
  for (std::size_t i = 0; i < drift.elements; ++i) {
    double density = drift.density;
    if (drift.kind == Drift::Kind::kCluster) density = i >= drift.elements / 3 && i < drift.elements / 2 ? 0.9 : 0.0;
    if (drift.kind == Drift::Kind::kSmallFirst && drift.element_bytes == 2) {
      const std::uint64_t exponent = SlowElement(versions.base, i, 2) >> 7 & 0xff;
      density = std::min(1.0, density * std::pow(2.0, 119.0 - static_cast<double>(exponent)));
    }
    if (chance() >= density) continue;
    std::byte* element = &versions.next[i * drift.element_bytes];
    if (drift.kind == Drift::Kind::kRandomBits) {
      for (std::size_t j = 0; j < drift.element_bytes; ++j) element[j] = static_cast<std::byte>(random());
    } else {  // the lowest byte by one, which may carry over: then it is a step of many
      *element = static_cast<std::byte>(std::to_integer<unsigned>(*element) + (random() % 2 == 0 ? 1U : 255U));
    }
  }
  return versions;
}

}  // namespace layercast::test
