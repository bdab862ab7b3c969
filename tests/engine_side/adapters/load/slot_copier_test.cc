#include "engine_side/adapters/load/slot_copier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "layercast/captured_buffers.h"
#include "tests/support/device/test_device.h"
#include "tests/support/filled_slots.h"

namespace layercast {
namespace {

using testing::FilledSlots;
using testing::FilledWith;
using testing::TestDevice;

std::vector<AdapterTerm> SomeTerms() {
  const AdapterTerm q{.layer = "model.layers.0.self_attn.qkv_proj",
                      .parameter = "weight",
                      .shard = "q_proj",
                      .rows = 24,
                      .columns = 40};
  AdapterTerm k = q, up = q, experts = q;
  k.shard = "k_proj";
  k.first_row = 24;
  up.layer = "model.layers.0.mlp.up_proj";
  up.shard = "";
  up.rows = 33;
  experts.layer = "model.layers.0.mlp.experts";
  experts.parameter = "w13_weight";
  experts.experts = 3;
  return {q, k, up, experts};
}

// Slots and copies of them, the slots on a device if one is given.
struct Rig {
  explicit Rig(TestDevice* device = nullptr, std::size_t slots = 2) : on_device(device) {
    const AdapterSlotSizes sizes{.slots = slots, .max_rank = 6, .dtype = DType::kBF16};
    copies = std::make_unique<FilledSlots>(SomeTerms(), sizes);
    MemoryResource& memory = device == nullptr ? static_cast<MemoryResource&>(host) : device_memory;
    places = std::make_unique<AdapterSlots>(SomeTerms(), sizes, memory, host);
    copier = std::make_unique<SlotCopier>(device == nullptr ? nullptr : device->Opener()(device->device()));
  }

  // What a load would report, by the tables of captured buffers.
  Digest Reference(std::size_t copy) const {
    const AdapterSlots& slots = copies->slots();
    std::vector<CapturedBuffer> used;
    const std::vector<CapturedBuffer> all = slots.Buffers(copy);
    for (std::size_t i = 0; i < slots.terms().size(); ++i) {
      if (slots.NumbersOf(i, copy).rank > 0) used.insert(used.end(), {all[2 * i], all[2 * i + 1]});
    }
    return SlotDigest(CapturedBuffers::Adopt(std::move(used)).ServedDigest(), slots.Numbers(copy));
  }

  struct OfDevice final : MemoryResource {
    explicit OfDevice(TestDevice*& device) : of(device) {}
    std::byte* Allocate(std::size_t bytes) override { return of->Allocate(bytes); }
    void Deallocate(std::byte* /*address*/, std::size_t /*bytes*/) noexcept override {}
    Device device() const override { return of->device(); }
    TestDevice*& of;
  };
  TestDevice* on_device;
  HostMemory host;
  OfDevice device_memory{on_device};
  std::unique_ptr<FilledSlots> copies;
  std::unique_ptr<AdapterSlots> places;
  std::unique_ptr<SlotCopier> copier;
};

void ExpectComesBack(Rig& rig) {
  const FilledWith some{
      .seed = 3, .rank = 5, .scale = 1.5F, .has = [](const AdapterTerm& term) { return term.shard != "k_proj"; }};
  rig.copies->Fill(0, some);
  const Digest digest = rig.copier->DigestOf({rig.copies->slots(), 0});
  EXPECT_EQ(digest, rig.Reference(0));
  for (const std::size_t slot : {1U, 0U, 1U}) {
    rig.copier->Copy({rig.copies->slots(), 0}, {*rig.places, slot});
    EXPECT_EQ(rig.copier->DigestOf({*rig.places, slot}), digest);
    rig.copies->Fill(1, {.seed = 4});  // another adapter was there before
    rig.copies->FillWithNaN(1);
    rig.copier->Copy({*rig.places, slot}, {rig.copies->slots(), 1});
    EXPECT_EQ(rig.Reference(1), digest);
  }
  rig.copies->SetA(0, 1, 0, 0, 0, 77.0F);
  EXPECT_NE(rig.copier->DigestOf({rig.copies->slots(), 1}), digest);
}

TEST(SlotCopier, BringsAnAdapterToAnotherPlaceAndBack) {
  Rig rig;
  ExpectComesBack(rig);
}

TEST(SlotCopier, BringsAnAdapterToADeviceAndBack) {
  std::string why;
  const std::unique_ptr<TestDevice> device = testing::MakeTestDevice(why);
  ASSERT_NE(device, nullptr) << why;
  Rig rig(device.get());
  const std::size_t before = device->allocations();
  ExpectComesBack(rig);
  EXPECT_EQ(device->allocations(), before);  // all of it is taken at the start
}

TEST(SlotCopier, AnAdapterOfTheBaseAloneHasNothingToCopy) {
  Rig rig;
  rig.copies->slots().Clear(0);
  rig.copier->Copy({rig.copies->slots(), 0}, {*rig.places, 1});
  EXPECT_FALSE(rig.places->Has(1, 0));
  EXPECT_EQ(rig.copier->DigestOf({*rig.places, 1}), rig.Reference(0));
}

}  // namespace
}  // namespace layercast
