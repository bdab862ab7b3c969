// Files of one key each: a line of text that says what kind of key it is, and the key. Used by Keys, which reads them,
// and by key folders, which make them.
#pragma once

#include <string>
#include <string_view>

#include "src/net/keys/key.h"

namespace layercast {

// What kind a file's key is of. A file of another kind is refused, so that none stands in another's place.
inline constexpr std::string_view kClientSecret = "layercast-client-secret-1";
inline constexpr std::string_view kClientPublic = "layercast-client-1";
inline constexpr std::string_view kServerSecret = "layercast-server-secret-1";
inline constexpr std::string_view kServerPublic = "layercast-server-1";
inline constexpr std::string_view kJobSecret = "layercast-job-secret-1";
inline constexpr std::string_view kSigningSecret = "layercast-signing-secret-1";
inline constexpr std::string_view kSigningPublic = "layercast-signing-1";

// All throw errors that name the file, and never what it holds: kNotFound if there is none, kInvalidArgument if it is
// not one of that kind. A secret one is refused as ssh does it, if it belongs to another user, or others can read it.
SecretKey ReadSecretFile(const std::string& path, std::string_view kind);
PublicKey ReadPublicFile(const std::string& path, std::string_view kind);

// The one line of such a secret file of any other kind: 16 to 512 printable characters of ASCII, without blanks.
std::string ReadSecretLine(const std::string& path);

// Throws unless the file belongs to this process's user or to root, and nobody else can write it.
void ExpectNobodyElseWrites(int file, const std::string& path);

// Make a file that was not there, a secret one for its owner alone. Throw kInvalidArgument if there is one already.
void WriteSecretFile(const std::string& path, std::string_view kind, const SecretKey& key);
void WritePublicFile(const std::string& path, std::string_view kind, const PublicKey& key);
// The same for text.
void WriteNewFile(const std::string& path, std::string_view text, unsigned mode);

}  // namespace layercast
