#include "src/net/keys/key_folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include "layercast/error.h"
#include "src/base/exhausted.h"
#include "src/net/keys/admitted_keys.h"
#include "src/net/keys/key_file.h"

namespace layercast {
namespace {

constexpr const char* kClientsHead =
    "# Who may talk to whoever listens with these keys: KEY ROLES NAME, a line for each (layercast keygen prints it).\n"
    "# Roles: read, generate, reload, publish, with commas between. A change is taken up within a second.\n";

// With the folder of a server, its file of that name is meant.
PublicKey ReadServerPublic(const std::string& path) {
  const bool is_folder = std::filesystem::is_directory(path);
  return ReadPublicFile(is_folder ? path + kServerPublicFile : path, kServerPublic);
}

void MakeFolder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  if (errno == EEXIST) {
    throw Error(ErrorCode::kInvalidArgument, folder + " is there already: keys are never overwritten");
  }
  throw SystemError(errno, ErrorCode::kInvalidArgument, "cannot make the folder " + folder);
}

PublicKey MakeClientKeys(const std::string& folder, const PublicKey& server) {
  const KeyPair client = RandomKeyPair();
  WriteSecretFile(folder + kSecretKeyFile, kClientSecret, client.secret_key);
  WritePublicFile(folder + kPublicKeyFile, kClientPublic, client.public_key);
  WritePublicFile(folder + kServerPublicFile, kServerPublic, server);
  return client.public_key;
}

}  // namespace

PublicKey MakeServerFolder(const std::string& folder) {
  MakeFolder(folder);
  const KeyPair server = RandomKeyPair();
  WriteSecretFile(folder + kServerKeyFile, kServerSecret, server.secret_key);
  const PublicKey own = MakeClientKeys(folder, server.public_key);
  WriteNewFile(folder + kClientsFile, kClientsHead + ClientLine(own, Roles::All(), "self") + "\n", 0600);
  return own;
}

PublicKey MakeClientFolder(const std::string& folder, const std::string& server_public) {
  const PublicKey server = ReadServerPublic(server_public);  // before anything is made
  MakeFolder(folder);
  return MakeClientKeys(folder, server);
}

void MakeJobSecret(const std::string& path) { WriteSecretFile(path, kJobSecret, RandomSecret()); }

}  // namespace layercast
