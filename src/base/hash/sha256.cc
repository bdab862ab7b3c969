// By OpenSSL's libcrypto, which uses the processor's own instructions for it: six times as fast as libsodium's.
#include "src/base/hash/sha256.h"

#include <openssl/evp.h>

#include "layercast/error.h"

namespace layercast {
namespace {

void ExpectDone(int done) {
  if (done != 1) throw Error(ErrorCode::kInternal, "libcrypto: it has no SHA-256");
}

}  // namespace

void Hasher::Free::operator()(evp_md_ctx_st* state) const { ::EVP_MD_CTX_free(state); }

Hasher::Hasher() : state_(::EVP_MD_CTX_new()) {
  ExpectDone(state_ == nullptr ? 0 : ::EVP_DigestInit_ex(state_.get(), ::EVP_sha256(), nullptr));
}

void Hasher::Update(std::span<const std::byte> bytes) {
  ExpectDone(::EVP_DigestUpdate(state_.get(), bytes.data(), bytes.size()));
}

Hash Hasher::Finish() {
  Hash hash;
  ExpectDone(::EVP_DigestFinal_ex(state_.get(), reinterpret_cast<unsigned char*>(hash.data()), nullptr));
  return hash;
}

Hash HashOf(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.Update(bytes);
  return hasher.Finish();
}

std::string ToHex(const Hash& hash) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : hash) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    text += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return text;
}

std::string ToBase64(const Hash& hash) {
  std::string text((hash.size() + 2) / 3 * 4 + 1, '\0');  // with the zero that is written behind it
  const int length =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(hash.data()), static_cast<int>(hash.size()));
  text.resize(static_cast<std::size_t>(length));
  return text;
}

}  // namespace layercast
