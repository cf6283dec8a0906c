"""Counts and quantities combine only where physics says so (lib/units.hpp, lib/fraction.hpp)."""

from _compile_fail import Case, main

NO_PLUS = ("no match for 'operator+'", "invalid operands")
NO_MINUS = ("no match for 'operator-'", "invalid operands")
NO_TIMES = ("no match for 'operator*'", "ambiguous overload for 'operator*'", "invalid operands")
NO_DIVIDE = ("no match for 'operator/'", "ambiguous overload for 'operator/'", "invalid operands")
NO_COMPARE = ("no match for 'operator<'", "no match for 'operator=='", "invalid operands")
NO_CONVERSION = ("could not convert", "cannot convert", "conversion from", "no viable conversion", "no suitable")

CASES = [
    Case("FLOPs plus bytes", "auto x = Flops(1) + Bytes(1);", "auto x = Flops(1) + Flops(1);", NO_PLUS),
    Case("bytes minus elements", "auto x = Bytes(1) - Elements(1);", "auto x = Bytes(1) - Bytes(1);", NO_MINUS),
    Case("adding FLOPs to bytes in place", "Bytes b(1); b += Flops(1);", "Bytes b(1); b += Bytes(1);",
         ("no match for 'operator+='", "no viable overloaded '+='")),
    Case("a count plus a bare number", "auto x = Flops(1) + 1;", "auto x = Flops(1) + Flops(1);", NO_PLUS),
    Case("FLOPs times FLOPs", "auto x = Flops(2) * Flops(2);", "auto x = Flops(2) * 2;", NO_TIMES),
    Case("a number becomes no count by itself", "Flops x = 5;", "Flops x(5);", NO_CONVERSION),
    Case("a count becomes no number by itself", "double x = Flops(5);", "double x = Flops(5).to_double();", NO_CONVERSION),
    Case("comparing FLOPs with bytes", "bool x = Flops(1) < Bytes(1);", "bool x = Flops(1) < Flops(2);", NO_COMPARE),
    Case("parameters are not elements", "Params x = Elements(1);", "Params x = Params(1);", NO_CONVERSION),
    Case("FLOPs over a byte rate", "auto x = Flops(1) / ByteRate(1);", "Seconds x = Flops(1) / FlopRate(1);", NO_DIVIDE),
    Case("bytes over a FLOP rate", "auto x = Bytes(1) / FlopRate(1);", "Seconds x = Bytes(1) / ByteRate(1);", NO_DIVIDE),
    Case("bytes over seconds is no FLOP rate", "FlopRate x = Bytes(1) / Seconds(1);", "ByteRate x = Bytes(1) / Seconds(1);",
         NO_CONVERSION),
    Case("seconds plus a rate", "auto x = Seconds(1) + FlopRate(1);", "auto x = Seconds(1) + Seconds(1);", NO_PLUS),
    Case("a number becomes no time by itself", "Seconds x = 1.0;", "Seconds x(1.0);", NO_CONVERSION),
    Case("a time becomes no number by itself", "double x = Seconds(1.0);", "double x = Seconds(1.0).value();", NO_CONVERSION),
    Case("a ratio of times is a number", "Seconds x = Seconds(2) / Seconds(1);", "double x = Seconds(2) / Seconds(1);",
         NO_CONVERSION),
    Case("a fraction is no double", "double x = make_fraction(1, 8);", "double x = make_fraction(1, 8).value();", NO_CONVERSION),
    Case("a double is no fraction", "Fraction x = make_fraction(0, 1); x = 0.5;", "Fraction x = make_fraction(1, 2);",
         ("no match for 'operator='", "no viable overloaded '='")),
]

if __name__ == "__main__":
    main('#include "lib/fraction.hpp"\n#include "lib/units.hpp"', CASES)
