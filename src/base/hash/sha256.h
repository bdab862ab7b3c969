// SHA-256: for what an adversary must not find other bytes for. Digests (src/base/digest) are some ten times as fast,
// and stop accidents alone. Used for versions that are signed, for keys that are
// compared, and for what a page may run.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

// OpenSSL's own type, whose headers stay in sha256.cc.
struct evp_md_ctx_st;

namespace layercast {

inline constexpr std::size_t kHashBytes = 32;

// Value.
using Hash = std::array<std::byte, kHashBytes>;

// Hashes bytes that come in pieces. Value that can be moved; one thread only.
class Hasher {
 public:
  Hasher();
  void Update(std::span<const std::byte> bytes);
  // Ends it: nothing may follow.
  Hash Finish();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* state) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> state_;
};

Hash HashOf(std::span<const std::byte> bytes);
// 64 hexadecimal digits, as sha256sum prints them.
std::string ToHex(const Hash& hash);
// As HTML names what it allows: "sha256-" and this.
std::string ToBase64(const Hash& hash);

}  // namespace layercast
