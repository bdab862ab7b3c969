// Where the tensors of an adapter go in a slot: the adapter's factors take the places that the base weights of their
// modules have, rows for B and columns for A. Made once for each form that an adapter comes in, before any byte moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_side/adapters/adapter_slots.h"
#include "layercast/model/module.h"
#include "layercast/model/source_transforms.h"
#include "layercast/recorded_model.h"
#include "src/adapter/adapter_tensors.h"

namespace layercast {

// Value.
struct AdapterPlacing {
  Recording recording;                      // of all tensors of the version; those of others are skipped
  std::vector<SourceTransform> transforms;  // by which some are read
  std::vector<AdapterNumbers> numbers;      // by term, then by expert: AdapterSlots::Numbers
  std::uint64_t elsewhere = 0;              // modules that other stages of the pipeline hold

  // The tree that loads the slot. Its parameters are called as the slot's buffers: those of the terms that the adapter
  // has, on this rank.
  std::unique_ptr<Module> Tree() const;
};

// An adapter among the tensors of a version. Value; borrows all.
struct AdapterInVersion {
  std::span<const TensorSpec> tensors;        // all of the version
  std::span<const TensorSpec> own;            // the adapter's, under its own names
  std::span<const std::uint32_t> of_adapter;  // their indices in `tensors`
  const AdapterConfig& config;
  const AdapterTensors& adapter;  // of `own`
};

// What a slot has room for. Value; terms borrowed.
struct AdapterRoom {
  std::span<const AdapterTerm> terms;
  std::int64_t max_rank;
  DType dtype;
};

// `base` is this rank's tree of the model, in full precision. Throws kInvalidArgument, naming tensor, expected and got,
// for a module that the model does not have, a shape that is not the base weight's, a rank above the slots' largest and
// a module that comes twice; kUnsupported for a module that is no linear layer, router, expert, embedding or head, or
// that the slots have no room for (AdapterTermsOf's `modules`).
AdapterPlacing PlaceAdapter(const Module& base, const AdapterRoom& room, const AdapterInVersion& in);

}  // namespace layercast
