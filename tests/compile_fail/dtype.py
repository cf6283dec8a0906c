"""bf16 is made from float only where the code says so; element types are no integers."""

from _compile_fail import Case, main

CASES = [
    Case("bf16 from float is explicit", "bf16 x = 1.0f; (void)x;", "bf16 x(1.0f); (void)x;",
         ("conversion from 'float' to non-scalar type", "no viable conversion")),
    Case("assigning a float to a bf16", "bf16 x(1.0f); x = 2.0f;", "bf16 x(1.0f); x = bf16(2.0f);",
         ("no match for 'operator='", "no viable overloaded '='")),
    Case("a DType is no integer", "int x = DType::kF32; (void)x;", "int x = static_cast<int>(DType::kF32); (void)x;",
         ("cannot convert", "cannot initialize")),
    Case("an integer is no DType", "DType x = 1; (void)x;", "DType x = DType::kBF16; (void)x;",
         ("cannot convert", "cannot initialize")),
    Case("bytes of an unnamed type", "dtype_bytes(4);", "dtype_bytes(DType::kF32);", ("cannot convert", "no matching function")),
]

if __name__ == "__main__":
    main('#include "lib/dtype.hpp"', CASES)
