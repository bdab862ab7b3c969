#include "src/net/keys/keys.h"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "layercast/error.h"
#include "src/net/keys/key_file.h"
#include "src/net/keys/key_folder.h"

namespace layercast {
namespace {

// Of the pairs that a job's secret makes.
constexpr std::string_view kServerOfJob = "layercast job 1: server";
constexpr std::string_view kClientOfJob = "layercast job 1: client";

KeyPair ReadPair(const std::string& path, std::string_view kind) {
  const SecretKey secret = ReadSecretFile(path, kind);
  return {PublicOf(secret), secret};
}

std::string Environment(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

// What the environment says, where the options say nothing.
KeyOptions Completed(KeyOptions options) {
  const bool silent = options.folder.empty() && options.secret.empty() && !options.insecure;
  if (silent) {
    options.folder = Environment("LAYERCAST_KEYS");
    options.secret = Environment("LAYERCAST_SECRET");
  }
  if (options.sign.empty()) options.sign = Environment("LAYERCAST_SIGN");
  if (options.trust.empty()) options.trust = Environment("LAYERCAST_TRUST");
  const char* both = silent ? "LAYERCAST_KEYS and LAYERCAST_SECRET" : "a key folder and a secret";
  if (!options.folder.empty() && !options.secret.empty()) {
    throw Error(ErrorCode::kInvalidArgument, std::string(both) + ": expected one of them, got both");
  }
  if (options.insecure && !(options.folder.empty() && options.secret.empty())) {
    throw Error(ErrorCode::kInvalidArgument,
                "keys, and --insecure, which says that there are none: expected one of them");
  }
  return options;
}

}  // namespace

struct Keys::State {
  std::string source;               // the folder, or the file of the job's secret
  std::optional<SecretKey> secret;  // empty: there is a folder
  KeyPair client;
  PublicKey server;
};

Keys Keys::From(const KeyOptions& options) {
  const KeyOptions complete = Completed(options);
  Keys keys;
  keys.insecure_ = complete.insecure;
  keys.allow_unsigned_ = complete.allow_unsigned;
  if (!complete.sign.empty()) keys.signing_ = std::make_shared<const SigningKey>(SigningKey::Read(complete.sign));
  if (!complete.trust.empty()) keys.trusted_ = std::make_shared<const TrustedKeys>(TrustedKeys::Read(complete.trust));
  if (!complete.secret.empty()) {
    const SecretKey secret = ReadSecretFile(complete.secret, kJobSecret);
    keys.state_ = std::make_shared<const State>(State{.source = complete.secret,
                                                      .secret = secret,
                                                      .client = DerivedKeyPair(secret, kClientOfJob),
                                                      .server = DerivedKeyPair(secret, kServerOfJob).public_key});
  } else if (!complete.folder.empty()) {
    const std::string& folder = complete.folder;
    const KeyPair client = ReadPair(folder + kSecretKeyFile, kClientSecret);
    const PublicKey server = ReadPublicFile(folder + kServerPublicFile, kServerPublic);
    keys.state_ =
        std::make_shared<const State>(State{.source = folder, .secret = {}, .client = client, .server = server});
  }
  return keys;
}

const KeyPair& Keys::client() const { return state_->client; }
const PublicKey& Keys::server() const { return state_->server; }

KeyPair Keys::server_pair() const {
  if (state_->secret) return DerivedKeyPair(*state_->secret, kServerOfJob);
  const std::string path = state_->source + kServerKeyFile;
  try {
    return ReadPair(path, kServerSecret);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    throw Error(ErrorCode::kNotFound,
                std::string(error.what()) + ": who listens needs the server's key, and this folder is a client's");
  }
}

AdmittedKeys Keys::admitted() const {
  if (!state_->secret) return AdmittedKeys(state_->source + kClientsFile);
  return {KeyTable{{client().public_key, AdmittedKey{Roles::All(), "job"}}}, "secret " + state_->source};
}

}  // namespace layercast
