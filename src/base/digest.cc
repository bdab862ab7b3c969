// The header-only form of xxHash, compiled here for the build's instruction set: a third faster than
// the shared library (docs/build.md).
#include "src/base/digest.h"

#include <charconv>
#include <cstdint>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace layercast {
namespace {

Digest ToDigest(XXH128_hash_t hash) { return Digest{hash.high64, hash.low64}; }

void AppendHex(std::uint64_t value, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  for (int shift = 60; shift >= 0; shift -= 4) out.push_back(kDigits[(value >> shift) & 0xF]);
}

std::optional<std::uint64_t> ParseHex(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string Digest::ToHex() const {
  std::string out;
  out.reserve(32);
  AppendHex(high, out);
  AppendHex(low, out);
  return out;
}

std::optional<Digest> Digest::FromHex(std::string_view text) {
  if (text.size() != 32) return std::nullopt;
  const auto high = ParseHex(text.substr(0, 16));
  const auto low = ParseHex(text.substr(16));
  if (!high || !low) return std::nullopt;
  return Digest{*high, *low};
}

std::string Version::ToString() const {
  return lineage + "@" + std::to_string(step) + ":" + digest.ToHex().substr(0, 16);
}

Digest DigestOf(std::span<const std::byte> bytes) { return ToDigest(XXH3_128bits(bytes.data(), bytes.size())); }

struct Digester::State {
  alignas(64) XXH3_state_t xxh;
};

Digester::Digester() : state_(std::make_unique<State>()) { Reset(); }
Digester::Digester(const Digester& other) : Digester() { XXH3_copyState(&state_->xxh, &other.state_->xxh); }
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;
Digester& Digester::operator=(Digester&&) noexcept = default;

void Digester::Update(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

Digest Digester::Finish() const { return ToDigest(XXH3_128bits_digest(&state_->xxh)); }

void Digester::Reset() { XXH3_128bits_reset(&state_->xxh); }

}  // namespace layercast
