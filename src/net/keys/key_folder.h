// A folder of keys, as `layercast keygen` makes it: a server's, or a client's of such a server. Used by keygen and
// Keys.
//
//   secret.key     who this process is where it connects; its owner alone can read it
//   public.key     the public half, which goes into the server's list of clients
//   server.public  whom this process takes for a server
//   server.key     only where something listens: the server's secret half
//   clients        only where something listens: who is admitted, and to what
#pragma once

#include <string>

#include "src/net/keys/key.h"

namespace layercast {

inline constexpr const char* kSecretKeyFile = "/secret.key";
inline constexpr const char* kPublicKeyFile = "/public.key";
inline constexpr const char* kServerPublicFile = "/server.public";
inline constexpr const char* kServerKeyFile = "/server.key";
inline constexpr const char* kClientsFile = "/clients";

// Makes a folder for whoever listens. Its own key is admitted, to everything. Throws kInvalidArgument if anything of
// that name is there: nothing is ever overwritten. Returns the folder's public client key.
PublicKey MakeServerFolder(const std::string& folder);
// Makes a client's folder. `server_public`: the file of that name of the server's folder, or the folder.
PublicKey MakeClientFolder(const std::string& folder, const std::string& server_public);
// Makes the secret of a job.
void MakeJobSecret(const std::string& path);

}  // namespace layercast
