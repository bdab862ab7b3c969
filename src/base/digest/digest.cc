// The header-only form of xxHash, compiled here for the build's instruction set, is a third faster than the shared
// library (docs/build.md).
#include "src/base/digest/digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <utility>

#include "src/base/check.h"
#include "src/base/digest/leaf_digest.h"
#include "src/base/run_at.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace layercast {
namespace {

// The digests of leaves are themselves digested as they lie in memory, which this must hold for.
static_assert(std::endian::native == std::endian::little && sizeof(Digest) == 16);

Digest ToDigest(XXH128_hash_t hash) { return Digest{hash.high64, hash.low64}; }

Digest LeafDigest(std::span<const std::byte> bytes) {
#ifdef __x86_64__
  static const bool avx2 = __builtin_cpu_supports("avx2");
  if (avx2) {
    const LeafHash hash = HashLeafByAvx2(bytes.data(), bytes.size());
    return Digest{hash.high, hash.low};
  }
#endif
  return ToDigest(XXH3_128bits(bytes.data(), bytes.size()));
}

constexpr std::size_t kHexDigits = 16;  // of half a digest

void PutHex(std::uint64_t value, std::span<char, kHexDigits> out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (std::size_t i = kHexDigits; i-- > 0; value >>= 4) out[i] = kDigits[value & 0xF];
}

std::optional<std::uint64_t> ParseHex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void AppendHex(const Digest& digest, std::string& to) {
  std::array<char, 2 * kHexDigits> hex;
  const std::span digits(hex);
  PutHex(digest.high, digits.first<kHexDigits>());
  PutHex(digest.low, digits.last<kHexDigits>());
  to.append(hex.data(), hex.size());
}

std::string Digest::ToHex() const {
  std::string hex;
  AppendHex(*this, hex);
  return hex;
}

std::optional<Digest> Digest::FromHex(std::string_view text) {
  if (text.size() != 2 * kHexDigits) return std::nullopt;
  const auto high = ParseHex(text.substr(0, kHexDigits));
  const auto low = ParseHex(text.substr(kHexDigits));
  if (!high || !low) return std::nullopt;
  return Digest{*high, *low};
}

std::string Version::ToString() const { return RunAt(*this) + ":" + digest.ToHex().substr(0, 16); }

Digest DigestOf(std::span<const std::byte> bytes) {
  if (bytes.size() <= kLeafBytes) return LeafDigest(bytes);
  Digester digester;
  digester.Update(bytes);
  return digester.Finish();
}

void DigestLeaves(std::span<const std::byte> bytes, std::span<Digest> leaves) {
  LAYERCAST_CHECK(leaves.size() == NumLeaves(bytes.size()));
  for (Digest& leaf : leaves) {
    const std::size_t count = std::min(bytes.size(), kLeafBytes);
    leaf = LeafDigest(bytes.first(count));
    bytes = bytes.subspan(count);
  }
}

Digest DigestOfLeaves(std::span<const Digest> leaves) {
  LAYERCAST_CHECK(!leaves.empty());
  return leaves.size() == 1 ? leaves.front() : ToDigest(XXH3_128bits(leaves.data(), leaves.size_bytes()));
}

struct Digester::State {
  alignas(64) XXH3_state_t leaf;   // of the leaf that is not whole yet
  alignas(64) XXH3_state_t above;  // of the whole leaves' digests
  std::size_t leaf_bytes = 0;
  std::size_t leaves = 0;  // how many are whole
  Digest last_leaf;        // the digest of the last whole one
};

Digester::Digester() : state_(std::make_unique<State>()) { Reset(); }
Digester::Digester(const Digester& other) : state_(std::make_unique<State>()) {
  XXH3_copyState(&state_->leaf, &other.state_->leaf);
  XXH3_copyState(&state_->above, &other.state_->above);
  state_->leaf_bytes = other.state_->leaf_bytes;
  state_->leaves = other.state_->leaves;
  state_->last_leaf = other.state_->last_leaf;
}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::Update(std::span<const std::byte> bytes) {
  if (state_->leaf_bytes != 0) bytes = bytes.subspan(FillLeaf(bytes));
  for (; bytes.size() >= kLeafBytes; bytes = bytes.subspan(kLeafBytes)) AddLeaf(LeafDigest(bytes.first(kLeafBytes)));
  if (!bytes.empty()) FillLeaf(bytes);
}

// Adds as many of the bytes to the open leaf as fit, and returns how many those were.
std::size_t Digester::FillLeaf(std::span<const std::byte> bytes) {
  const std::size_t taken = std::min(bytes.size(), kLeafBytes - state_->leaf_bytes);
  XXH3_128bits_update(&state_->leaf, bytes.data(), taken);
  state_->leaf_bytes += taken;
  if (state_->leaf_bytes == kLeafBytes) {
    AddLeaf(ToDigest(XXH3_128bits_digest(&state_->leaf)));
    XXH3_128bits_reset(&state_->leaf);
    state_->leaf_bytes = 0;
  }
  return taken;
}

void Digester::AddLeaf(const Digest& leaf) {
  XXH3_128bits_update(&state_->above, &leaf, sizeof(leaf));
  state_->last_leaf = leaf;
  ++state_->leaves;
}

Digest Digester::Finish() const {
  if (state_->leaves == 0) return ToDigest(XXH3_128bits_digest(&state_->leaf));
  if (state_->leaf_bytes == 0) {
    return state_->leaves == 1 ? state_->last_leaf : ToDigest(XXH3_128bits_digest(&state_->above));
  }
  Digester whole(*this);
  whole.AddLeaf(ToDigest(XXH3_128bits_digest(&state_->leaf)));
  return ToDigest(XXH3_128bits_digest(&whole.state_->above));
}

void Digester::Reset() {
  XXH3_128bits_reset(&state_->leaf);
  XXH3_128bits_reset(&state_->above);
  state_->leaf_bytes = 0;
  state_->leaves = 0;
}

}  // namespace layercast
