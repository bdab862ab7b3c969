// Keys of CURVE (curve25519), in pairs. Used by key files, by the lists of who is admitted, and by sockets.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace layercast {

inline constexpr std::size_t kKeyBytes = 32;

// Value. Everybody may know it.
using PublicKey = std::array<std::byte, kKeyBytes>;

// Thirty-two bytes that nobody else may know. Value; it is wiped when it goes. No log and no error may have it.
class SecretKey {
 public:
  using Bytes = std::array<std::byte, kKeyBytes>;
  SecretKey() = default;
  explicit SecretKey(const Bytes& bytes) : bytes_(bytes) {}
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();
  const Bytes& bytes() const { return bytes_; }

 private:
  Bytes bytes_{};
};

// Value.
struct KeyPair {
  PublicKey public_key{};
  SecretKey secret_key{};
};

// Throws kInternal if the system has no random bytes.
KeyPair RandomKeyPair();
SecretKey RandomSecret();
PublicKey PublicOf(const SecretKey& secret);
// One of the pairs that whoever has `secret` can make: another for each label.
KeyPair DerivedKeyPair(const SecretKey& secret, std::string_view label);

// 64 hexadecimal digits, which no shell and no list takes for anything else.
std::string ToText(const std::array<std::byte, kKeyBytes>& key);
std::optional<std::array<std::byte, kKeyBytes>> KeyFromText(std::string_view text);
// What messages call a public key: its first eight digits. "deadbeef..."
std::string ShortText(const PublicKey& key);

}  // namespace layercast
