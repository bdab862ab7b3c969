// How subcommands read what an engine answered. Another version's may lack a field, or have it otherwise.
#pragma once

#include <string>

#include "layercast/error.h"
#include "src/control/engine_outcome.h"
#include "src/control/rpc.h"

namespace layercast::cli {

// Returns what `read` makes of an answer. Throws kCorrupt, naming engine and field, if the answer is not what it reads.
template <class Read>
auto ReadAnswer(const std::string& engine, const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt, NamingEngine(engine, std::string("its answer cannot be read: ") + error.what()));
  }
}

}  // namespace layercast::cli
