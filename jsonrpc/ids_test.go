package jsonrpc

import (
	"strings"
	"testing"
)

// TestIDTexts proves that no text but the one that was sent is taken for a call's
// id: answers that name another one must not reach it, however close they come
// (RPC-7, RPC-11).
func TestIDTexts(t *testing.T) {
	const last = 1<<idBits - 1
	for _, form := range []idForm{newIDForm(IntegerIDs), newIDForm(UUIDs)} {
		for _, id := range []uint64{1, 9, 4096, 0xabcdef, 1 << 52, last} {
			text := string(form.append(nil, id))
			if got, ok := form.parse([]byte(text)); got != id || !ok {
				t.Errorf("%s becomes %d, %v, want %d", text, got, ok, id)
			}
			for at := range text {
				for c := range 256 {
					other := text[:at] + string([]byte{byte(c)}) + text[at+1:]
					if got, ok := form.parse([]byte(other)); ok && (string(form.append(nil, got)) != other || got > last) {
						t.Errorf("%q is taken for %s", other, form.append(nil, got))
					}
				}
				for _, other := range []string{text[:at], text[at:], text[:at] + text[at+1:], text[:at] + "0" + text[at:]} {
					if got, ok := form.parse([]byte(other)); ok && (string(form.append(nil, got)) != other || got > last) {
						t.Errorf("%q is taken for %s", other, form.append(nil, got))
					}
				}
			}
		}
	}
	integers := newIDForm(IntegerIDs)
	for _, text := range []string{
		"0", "-1", "1.0", "4096.0", "04096", "4.096e3", `"4096"`, "null", "",
		"9007199254740992",                        // 2^53
		"18446744073709555712",                    // 2^64+4096
		"1" + strings.Repeat("0", 16),             // 17 digits
		"340282366920938463463374607431768215552", // 2^128+4096
	} {
		if id, ok := integers.parse([]byte(text)); ok {
			t.Errorf("%s is taken for %d", text, id)
		}
	}
	if one, two := newIDForm(UUIDs), newIDForm(UUIDs); one.head == two.head || one.high == two.high && one.head[:9] == two.head[:9] {
		t.Error("two connections have the same ids") // one time in 2^60
	}
}
