// A reader's word that it reads a version, by which what it reads is not collected. Used by those who read stores.
#pragma once

#include <chrono>
#include <filesystem>
#include <set>

#include "src/base/failpoint.h"
#include "src/store/store_folder.h"

namespace layercast {

// Resource; one thread only. If it is not renewed, as when its process was killed, it ends by itself.
class Lease {
 public:
  static constexpr std::chrono::seconds kTime{300};

  // Whoever may not write to the store has none, which is told of in the log: what is evicted may then be missed while
  // it is read.
  Lease(const StoreFolder& folder, const StoredName& version);
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // To be called now and then.
  void Renew();

 private:
  std::filesystem::path path_;  // empty: there is none
  std::chrono::steady_clock::time_point renewed_;
};

// The versions that are read; removes leases that have ended. `now` is NewFile::WrittenAt's.
std::set<StoredName> Leased(const StoreFolder& folder, std::int64_t now);

}  // namespace layercast
