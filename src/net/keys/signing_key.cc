#include "src/net/keys/signing_key.h"

#include <sodium.h>

#include <optional>

#include "layercast/error.h"
#include "src/net/keys/key_file.h"
#include "src/net/keys/key_list.h"

namespace layercast {
namespace {

const unsigned char* Chars(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
unsigned char* Room(std::span<std::byte> bytes) { return reinterpret_cast<unsigned char*>(bytes.data()); }

}  // namespace

SigningKey::SigningKey(const SecretKey& seed) {
  static_assert(crypto_sign_SECRETKEYBYTES == 2 * kKeyBytes && crypto_sign_SEEDBYTES == kKeyBytes &&
                crypto_sign_PUBLICKEYBYTES == kKeyBytes && crypto_sign_BYTES == kSignatureBytes);
  if (::sodium_init() < 0 || ::crypto_sign_seed_keypair(Room(public_key_), Room(expanded_), Chars(seed.bytes())) != 0) {
    throw Error(ErrorCode::kInternal, "libsodium: no signing key comes of a seed");
  }
}

SigningKey SigningKey::Read(const std::string& path) { return SigningKey(ReadSecretFile(path, kSigningSecret)); }

SigningKey::~SigningKey() { ::sodium_memzero(expanded_.data(), expanded_.size()); }

Signature SigningKey::Sign(std::span<const std::byte> text) const {
  Signature signature;
  if (::crypto_sign_detached(Room(signature), nullptr, Chars(text), text.size(), Chars(expanded_)) != 0) {
    throw Error(ErrorCode::kInternal, "libsodium: it does not sign");
  }
  return signature;
}

bool HasSigned(const PublicKey& key, std::span<const std::byte> text, const Signature& signature) {
  return ::crypto_sign_verify_detached(Chars(signature), Chars(text), text.size(), Chars(key)) == 0;
}

TrustedKeys TrustedKeys::Read(const std::string& path) {
  const std::string list = ReadKeyList(path);
  TrustedKeys trusted;
  trusted.source_ = path;
  std::string_view text = list;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = NextLine(text);
    const std::string_view kind = NextWord(line);
    if (kind.empty() || kind.starts_with('#')) continue;
    const std::optional<PublicKey> key = kind == kSigningPublic ? KeyFromText(NextWord(line)) : std::nullopt;
    if (!key) {  // what stands there may be a secret one that somebody has put there by mistake
      throw Error(ErrorCode::kInvalidArgument, path + ", line " + std::to_string(number) + ": expected '" +
                                                   std::string(kSigningPublic) +
                                                   "', a key of 64 hexadecimal digits, and perhaps a name");
    }
    trusted.names_.emplace(*key, std::string(NextWord(line)));
  }
  if (!trusted.names_.empty()) return trusted;
  throw Error(ErrorCode::kInvalidArgument, path + ": expected the public key of a publisher that signs, got none");
}

std::string TrustedKeys::Text() const {
  std::string text;
  for (const auto& [key, name] : names_) {
    text += (text.empty() ? "" : ", ") + ShortText(key) + (name.empty() ? "" : " (" + name + ")");
  }
  return text;
}

PublicKey MakeSigningKey(const std::string& path) {
  const SecretKey seed = RandomSecret();
  const SigningKey key(seed);
  WriteSecretFile(path, kSigningSecret, seed);
  WritePublicFile(path + ".public", kSigningPublic, key.public_key());
  return key.public_key();
}

}  // namespace layercast
