package dl

import "testing"

func TestDecode(t *testing.T) {
	for code, want := range map[int32]Version{
		1304: {1, 3, 4}, 2000: {2, 0, 0}, 2708: {2, 7, 8}, 2804: {2, 8, 4}, 20906: {2, 9, 6}, 22809: {2, 28, 9}, 23203: {2, 32, 3},
		30000: {3, 0, 0}, 120304: {12, 3, 4},
	} {
		if got, err := decode(code); err != nil || got != want {
			t.Errorf("%d is %v, %v", code, got, err)
		}
	}
	for _, code := range []int32{-1 << 31, -1, 0, 999} {
		if got, err := decode(code); err == nil {
			t.Errorf("%d is %v", code, got)
		}
	}
}
