// What there is of an adapter before any byte of it moves: in a PEFT folder, or in a version that publishers have.
// Used by the adapter receiver.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "layercast/adapter_config.h"
#include "layercast/adapters/adapter_receiver.h"
#include "layercast/reload_source.h"
#include "src/adapter/adapter_folder.h"
#include "src/adapter/adapter_tensors.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/net/keys/keys.h"
#include "src/session/fetch/fetch.h"

namespace layercast {

// Resource: at publishers, it is an open session with them.
struct OfferedAdapter {
  std::string name;               // in its version; empty: from a folder
  std::optional<Version> base{};  // that it was trained on, if it says so
  std::string config_text;        // as it travels; empty from a folder
  AdapterConfig config;
  std::vector<TensorSpec> tensors{};      // all of the version
  std::vector<TensorSpec> own{};          // the adapter's, under its own names
  std::vector<std::uint32_t> of_adapter;  // their indices in `tensors`
  std::optional<std::uint32_t> text{};    // index of the tensor that has config_text
  AdapterTensors adapter;                 // of `own`
  // Whose B is known to be all zeros. Of a folder they are counted as its bytes are read; that walk is the other owner.
  std::shared_ptr<std::uint64_t> zero_modules = std::make_shared<std::uint64_t>(0);
  std::optional<std::uint64_t> step{};  // of the version, from publishers
  std::string lineage{};
  bool is_stream = false;
  std::shared_ptr<const AdapterFolder>
      folder{};                             // where it lies; null: at publishers. Walks of it are the other owners
  std::unique_ptr<FetchSession> session{};  // by which its bytes come; null: from a folder
};

// Who asks, and how. Value; borrows what its options do.
struct AskingRank {
  ReceiverIdentity self;
  FetchOptions options;
  FailPoints& failpoints;  // outlive the session
  Deadline deadline;
};

// Finds out what the source offers, and checks all that can be checked without the model. The session with publishers
// stays open. Throws kNotFound, naming those that there are, if the version has no such adapter, and what
// AdapterFolder, FetchSession::Open and ReadAdapterTensors throw.
OfferedAdapter FindAdapter(const AdapterSource& source, const AskingRank& asking);
// The names of the adapters that publishers have in a version.
std::vector<std::string> AdaptersOf(const std::vector<std::string>& publishers, const Version& version,
                                    const Keys& keys, Deadline deadline);
// Where its bytes come from. Takes the session, if there is one.
ReloadSource BytesOf(OfferedAdapter& offered, const AdapterSource& source);

}  // namespace layercast
