// The keys of this process: which it proves itself by, which it expects of servers, and which it admits as a server;
// which it signs versions by, or trusts to have signed them. One value, read once, that goes to wherever a socket of
// ZeroMQ is bound or connected.
#pragma once

#include <memory>
#include <string>

#include "layercast/keys/key_options.h"
#include "src/net/keys/admitted_keys.h"
#include "src/net/keys/key.h"
#include "src/net/keys/signing_key.h"

namespace layercast {

// Value; immutable, thread-safe and cheap to copy.
class Keys {
 public:
  Keys() = default;  // none: nobody is authenticated
  // Throws kInvalidArgument if the options contradict each other, or what they name is no key folder or secret, naming
  // the file; kNotFound if it is not there.
  static Keys From(const KeyOptions& options);

  bool given() const { return state_ != nullptr; }
  // Whether an address may be bound that other hosts reach.
  bool may_leave_the_host() const { return given() || insecure_; }

  // By which versions are signed; null: they are not.
  const SigningKey* signing() const { return signing_.get(); }
  // Who must have signed what is taken of a publisher; null: nobody.
  const TrustedKeys* trusted() const { return trusted_.get(); }
  // Whether weights may come, although some are trusted, from where nobody signs.
  bool may_be_unsigned() const { return trusted_ == nullptr || allow_unsigned_; }

  // The rest is of keys that are given.
  const KeyPair& client() const;    // who this process is where it connects
  const PublicKey& server() const;  // whom it takes for a server
  // Which it proves itself by where it binds, and whom it admits there. Throw kNotFound if the folder is only a
  // client's, and kInvalidArgument, naming the file.
  KeyPair server_pair() const;
  AdmittedKeys admitted() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;          // owned by all copies
  std::shared_ptr<const SigningKey> signing_;   // owned by all copies
  std::shared_ptr<const TrustedKeys> trusted_;  // owned by all copies
  bool insecure_ = false;
  bool allow_unsigned_ = false;
};

}  // namespace layercast
