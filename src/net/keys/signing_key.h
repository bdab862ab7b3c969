// Keys by which publishers sign versions (Ed25519), and the list of those that an engine trusts. They are apart from
// CURVE's: those say who may talk to whom, these whose weights are served, whoever brings them. docs/security.md says
// what is signed.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "src/net/keys/key.h"

namespace layercast {

inline constexpr std::size_t kSignatureBytes = 64;

// Value.
using Signature = std::array<std::byte, kSignatureBytes>;

// Value; it is wiped when it goes.
class SigningKey {
 public:
  // `seed`: what its file holds.
  explicit SigningKey(const SecretKey& seed);
  // Throws what ReadSecretFile throws.
  static SigningKey Read(const std::string& path);
  SigningKey(const SigningKey&) = default;
  SigningKey& operator=(const SigningKey&) = delete;
  ~SigningKey();

  const PublicKey& public_key() const { return public_key_; }
  Signature Sign(std::span<const std::byte> text) const;

 private:
  std::array<std::byte, 2 * kKeyBytes> expanded_{};
  PublicKey public_key_{};
};

// Whether the holder of this key has signed this text.
bool HasSigned(const PublicKey& key, std::span<const std::byte> text, const Signature& signature);

// The keys whose versions an engine takes. There may be several, so that one can take another's place. Value.
class TrustedKeys {
 public:
  // A line for each, "layercast-signing-1 KEY [NAME]", as `layercast keygen --sign` makes files of one line; what
  // begins with '#' is a comment. Throws kNotFound, and kInvalidArgument naming the file and the line, also if there is
  // no key.
  static TrustedKeys Read(const std::string& path);

  bool Has(const PublicKey& key) const { return names_.contains(key); }
  const std::string& source() const { return source_; }
  std::string Text() const;  // "deadbeef... (trainer), 00112233..."

 private:
  std::string source_;
  std::map<PublicKey, std::string> names_;
};

// Makes a signing key: `path`, for its owner alone, and `path`.public, for whoever is to trust it. Returns the public
// half.
PublicKey MakeSigningKey(const std::string& path);

}  // namespace layercast
