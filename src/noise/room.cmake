# What is drawn must be the same on every processor: nothing is fused that is not written so.
set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
