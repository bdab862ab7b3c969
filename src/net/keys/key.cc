#include "src/net/keys/key.h"

#include <sodium.h>

#include "layercast/error.h"

namespace layercast {
namespace {

unsigned char* Raw(std::array<std::byte, kKeyBytes>& key) { return reinterpret_cast<unsigned char*>(key.data()); }
const unsigned char* Raw(const std::array<std::byte, kKeyBytes>& key) {
  return reinterpret_cast<const unsigned char*>(key.data());
}

void ExpectSodium() {
  if (::sodium_init() < 0) throw Error(ErrorCode::kInternal, "libsodium: it has no random bytes");
}

}  // namespace

SecretKey::~SecretKey() { ::sodium_memzero(bytes_.data(), bytes_.size()); }

KeyPair RandomKeyPair() {
  const SecretKey secret = RandomSecret();
  return {PublicOf(secret), secret};
}

SecretKey RandomSecret() {
  ExpectSodium();
  SecretKey::Bytes bytes;
  ::randombytes_buf(bytes.data(), bytes.size());
  const SecretKey secret(bytes);
  ::sodium_memzero(bytes.data(), bytes.size());
  return secret;
}

PublicKey PublicOf(const SecretKey& secret) {
  PublicKey key;
  if (::crypto_scalarmult_base(Raw(key), Raw(secret.bytes())) != 0) {
    throw Error(ErrorCode::kInternal, "libsodium: no public key comes of a secret one");
  }
  return key;
}

KeyPair DerivedKeyPair(const SecretKey& secret, std::string_view label) {
  ExpectSodium();
  SecretKey::Bytes seed;  // keyed BLAKE2b, so that one pair tells nothing about the secret or another pair
  ::crypto_generichash(Raw(seed), seed.size(), reinterpret_cast<const unsigned char*>(label.data()), label.size(),
                       Raw(secret.bytes()), kKeyBytes);
  PublicKey of_pair;
  SecretKey::Bytes bytes;
  ::crypto_box_seed_keypair(Raw(of_pair), Raw(bytes), Raw(seed));
  KeyPair pair{of_pair, SecretKey(bytes)};
  ::sodium_memzero(seed.data(), seed.size());
  ::sodium_memzero(bytes.data(), bytes.size());
  return pair;
}

std::string ToText(const std::array<std::byte, kKeyBytes>& key) {
  std::string text(2 * kKeyBytes + 1, '\0');
  ::sodium_bin2hex(text.data(), text.size(), Raw(key), key.size());
  text.pop_back();
  return text;
}

std::optional<std::array<std::byte, kKeyBytes>> KeyFromText(std::string_view text) {
  std::array<std::byte, kKeyBytes> key;
  if (text.size() != 2 * kKeyBytes) return std::nullopt;
  std::size_t bytes = 0;
  const int failed = ::sodium_hex2bin(Raw(key), key.size(), text.data(), text.size(), nullptr, &bytes, nullptr);
  return failed != 0 || bytes != key.size() ? std::nullopt : std::optional(key);
}

std::string ShortText(const PublicKey& key) { return ToText(key).substr(0, 8) + "..."; }

}  // namespace layercast
