package fold

import (
	"fmt"
	"strings"
	"testing"
)

// TestScan shows the values of lines as kind:text.
func TestScan(t *testing.T) {
	for line, want := range map[string]string{
		"step 120 loss=-0.41":                           "1:120 2:-0.41",
		"nan inf -inf None true":                        "",
		"lr 1e-05, 3.0E+4 .5 1.,":                       "2:1e-05 2:3.0E+4 2:.5 2:1.",
		"[1., 2.]":                                      "2:1. 2:2.",
		"range 0-7 a-3 x -3 (+4)":                       "1:0 1:7 1:3 1:-3 1:+4",
		"10.0.3.17:29500 v2.3.1":                        "1:10 1:0 1:3 1:17 1:29500 1:2 1:3 1:1",
		"at 0x7f00deadbeef flag 0x1":                    "5:0x7f00deadbeef 4:0x1",
		"12ms 1.5s 3GiB 45% 1h2m3.5s 9it/s 7kg":         "2:12ms 2:1.5s 2:3GiB 1:45 2:1h2m3.5s 1:9 1:7",
		"2026-03-02T12:00:01.5Z 12:00:01,123 ok":        "3:2026-03-02T12:00:01.5Z 3:12:00:01,123",
		"2026-03-02 12:00:01+02:00 2026-03-02":          "3:2026-03-02 12:00:01+02:00 3:2026-03-02",
		"45%|##5 | 9/20 [00:12<01:15, 3.1it/s]":         "1:45 6:##5  1:9 1:20 3:00:12 3:01:15 2:3.1",
		"id 0b5e7c1a-52f4-4c1e-9d7b-3a1f2e4d5c6b":       "4:0b5e7c1a-52f4-4c1e-9d7b-3a1f2e4d5c6b",
		"12345678-52f4-4c1e-9d7b-3a1f2e4d5c6b":          "4:12345678-52f4-4c1e-9d7b-3a1f2e4d5c6b",
		"9f1c2d3e4b /tmp/x8k2j3 bfloat16 node17":        "4:9f1c2d3e4b 4:x8k2j3 1:16 1:17",
		"  1 indent   22":                               "1:1 1:22",
		"\x1b]0;pwned\a5 \x1b]8;;http://x\x1b\\6\x1b]7": "1:5 1:6 1:7",
		"\x1b[1;31m5\x1b[0m a\rb 6\r\n":                 "1:6",
		"9999999999999999999999 1e999":                  "1:9999999999999999999999 2:1e999",
	} {
		s := &New(0, nil).scanner
		s.line([]byte(line))
		var got []string
		for i, v := range s.spans {
			got = append(got, fmt.Sprintf("%d:%s", s.slots[i].kind, s.text[v.begin:v.end]))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q:\ngot  %v\nwant %v", line, strings.Join(got, " "), want)
		}
	}
}

// TestAmounts checks that the amounts of values have the right order.
func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		text string
		want float64
	}{
		{Integer, "-7", -7},
		{Integer, "00012", 12},
		{Number, "980ms", 0.98},
		{Number, "1m30s", 90},
		{Number, "2KiB", 2048},
		{Number, "1.5e3k", 1.5e6},
		{Number, "0.1", 0.1},
		{Number, "123456.789", 123456.789},
		{Number, "2.500000E+01", 25},
		{Address, "0xff00ff", 0xff00ff},
		{Moment, "12:00:01", 120001},
		{Name, "abc", 0},
		{Number, "1.", 1},
		{Number, "-.5", -0.5},
		{Integer, "123456789012345678", 123456789012345678},
	} {
		if got := amount(c.kind, []byte(c.text)); got < c.want-1e-12 || got > c.want+1e-12 {
			t.Errorf("%s is %v, not %v", c.text, got, c.want)
		}
	}
}
