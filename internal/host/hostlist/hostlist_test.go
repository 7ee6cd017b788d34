package hostlist

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"gpu[001-004,007],login1": "gpu001 gpu002 gpu003 gpu004 gpu007 login1",
		"n":                       "n",
		"a,a,b,a":                 "a a b a",
		"n[1,1,1-2]":              "n1 n1 n1 n2",
		"n[8-11]":                 "n8 n9 n10 n11",
		"n[08-11]":                "n08 n09 n10 n11",
		"n[098-101]":              "n098 n099 n100 n101",
		"n[8-011]":                "n8 n9 n10 n11",
		"n[008-09]":               "n008 n009",
		"n[0-0,00]":               "n0 n00",
		"[1-3]":                   "1 2 3",
		"r[1-2]n[01-03]":          "r1n01 r1n02 r1n03 r2n01 r2n02 r2n03",
		"n[9-10][9-10]":           "n99 n910 n109 n1010",
		"a[1-2]b[1-2]c[1-2]":      "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2",
		"a[1]b[2,3]c[4]d[5-6]e":   "a1b2c4d5e a1b2c4d6e a1b3c4d5e a1b3c4d6e",
		"n[1-2]-ib.example.org,x": "n1-ib.example.org n2-ib.example.org x",
		"_n-1.A[18446744073709551614-18446744073709551615]": "_n-1.A18446744073709551614 _n-1.A18446744073709551615",
		"n[00000000000000000000000000000000001]":            "n00000000000000000000000000000000001",
	} {
		got, err := Expand(text)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
}

func TestExpandSaysWhatIsWrong(t *testing.T) {
	long := strings.Repeat("n", 260)
	for text, want := range map[string]string{
		"":                  `host list "", byte 1: a host name is missing`,
		"a,,b":              `host list "a,,b", byte 3: a host name is missing`,
		"a,":                `host list "a,", byte 3: a host name is missing`,
		"n[1-3":             `host list "n[1-3", byte 2: [ without ]`,
		"n1]":               `host list "n1]", byte 3: ] without [`,
		"n[[1]]":            `host list "n[[1]]", byte 3: [ within [ ]`,
		"n[1]]":             `host list "n[1]]", byte 5: ] without [`,
		"n[]":               `host list "n[]", byte 3: a number is missing`,
		"n[1,,2]":           `host list "n[1,,2]", byte 5: a number is missing`,
		"n[1,]":             `host list "n[1,]", byte 5: a number is missing`,
		"n[1-]":             `host list "n[1-]", byte 3: "1-" is not a number or a range such as 1-8, below 2^64`,
		"n[-1]":             `host list "n[-1]", byte 3: "-1" is not a number or a range such as 1-8, below 2^64`,
		"n[1-2-3]":          `host list "n[1-2-3]", byte 3: "1-2-3" is not a number or a range such as 1-8, below 2^64`,
		"n[7,x]":            `host list "n[7,x]", byte 5: "x" is not a number or a range such as 1-8, below 2^64`,
		"n[+1]":             `host list "n[+1]", byte 3: "+1" is not a number or a range such as 1-8, below 2^64`,
		"n[3-1]":            `host list "n[3-1]", byte 3: the range "3-1" goes down; want the smaller number first`,
		"a b":               `host list "a b", byte 2: ' ' in a host name; want letters, digits, '.', '_' and '-'`,
		"a\n":               `host list "a\n", byte 2: '\n' in a host name; want letters, digits, '.', '_' and '-'`,
		"a\x00b":            `host list "a\x00b", byte 2: '\x00' in a host name; want letters, digits, '.', '_' and '-'`,
		"zürich":            `host list "zürich", byte 2: 'ü' in a host name; want letters, digits, '.', '_' and '-'`,
		"a,-oProxyCommand":  `host list "a,-oProxyCommand", byte 3: a host name cannot begin with '-'`,
		".[1-2]":            `host list ".[1-2]", byte 1: a host name cannot begin with '.'`,
		"n[1-999999999]":    `host list "n[1-999999999]", byte 1: more than 1048576 hosts`,
		"a,n[0-1048575]":    `host list "a,n[0-1048575]", byte 3: more than 1048576 hosts`,
		"n[1-2000][1-2000]": `host list "n[1-2000][1-2000]", byte 1: more than 1048576 hosts`,
		"n[0-18446744073709551615][0-18446744073709551615]": `host list "n[0-18446744073709551615][0-18446744073709551615]", byte 1: ` +
			`more than 1048576 hosts`,
		"n[18446744073709551616]": `host list "n[18446744073709551616]", byte 3: ` +
			`"18446744073709551616" is not a number or a range such as 1-8, below 2^64`,
		long:                  `host list "` + long[:60] + `"..., byte 1: a host name of 260 bytes; at most 253 are possible`,
		long[:252] + "[9-10]": `host list "` + long[:60] + `"..., byte 1: a host name of 254 bytes; at most 253 are possible`,
		"n[" + long + "]": `host list "n[` + long[:58] + `"..., byte 3: ` +
			`"` + long[:60] + `"... is not a number or a range such as 1-8, below 2^64`,
	} {
		got, err := Expand(text)
		if got != nil || err == nil || err.Error() != want {
			t.Errorf("got  %v, %v\nwant %s", got, err, want)
		}
	}
}

// A refused list costs nothing, and the largest possible one is not refused.
func TestMax(t *testing.T) {
	for _, text := range []string{"n[1-999999999]", strings.Repeat("n[1-1000]", 20)} {
		if n := testing.AllocsPerRun(1, func() { Expand(text) }); n > 100 {
			t.Errorf("%s: %v allocations for an error", text, n)
		}
	}
	if got, err := Expand("n[0-1023][0-1023]"); len(got) != Max {
		t.Errorf("got %d hosts, %v", len(got), err)
	}
	if got, err := Expand(strings.Repeat("n,", Max) + "n"); err == nil {
		t.Errorf("got %d hosts", len(got))
	}
}

func TestCompress(t *testing.T) {
	for names, want := range map[string]string{
		"":                        "",
		"n":                       "n",
		"n1":                      "n1",
		"n1 x":                    "n1,x",
		"n n":                     "n,n",
		"n n1 n2":                 "n,n[1-2]",
		"n1 n1 n1 n2":             "n[1,1,1-2]",
		"n1 n2 m1 n3":             "n[1-2],m1,n3",
		"n5 n4 n3":                "n[5,4,3]",
		"n8 n9 n10":               "n[8-10]",
		"n08 n09 n10 n11 n012":    "n[08-11,012]",
		"n099 n100 n101":          "n[099-101]",
		"n9 n010":                 "n[9,010]",
		"n1 n02":                  "n[1,02]",
		"n01 n2":                  "n[01,2]",
		"n000 n00 n0 n1":          "n[000,00,0-1]",
		"r1n1 r1n2 r2n1":          "r1n[1-2],r2n1",
		"1 2 3":                   "[1-3]",
		"n1-ib n2-ib":             "n1-ib,n2-ib",
		"gpu001 gpu002 gpu4 node": "gpu[001-002,4],node",
		"n18446744073709551615 n18446744073709551616":             "n18446744073709551615,n18446744073709551616",
		"n18446744073709551615 n00000000000000000000 n0":          "n[18446744073709551615,00000000000000000000,0]",
		"n18446744073709551614 n18446744073709551615 m9999999999": "n[18446744073709551614-18446744073709551615],m9999999999",
	} {
		if got := Compress(strings.Fields(names)); got != want {
			t.Errorf("%s: got %s, want %s", names, got, want)
		}
	}
}

func BenchmarkExpand(b *testing.B) {
	for _, text := range []string{"n[000001-100000]", "r[1-1000]n[01-100]", "gpu[1-50000]-ib,cpu[1-50000]-ib"} {
		b.Run(text, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if names, err := Expand(text); len(names) != 100_000 {
					b.Fatal(len(names), err)
				}
			}
		})
	}
}

func BenchmarkCompress(b *testing.B) {
	names, err := Expand("r[1-1000]n[01-100]")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if Compress(names) == "" {
			b.Fatal("nothing")
		}
	}
}

func ExampleExpand() {
	names, err := Expand("gpu[08-10],login1")
	fmt.Println(names, err)
	_, err = Expand("gpu[10-8]")
	fmt.Println(err)
	fmt.Println(Compress(slices.Insert(names, 3, "gpu11")))
	// Output:
	// [gpu08 gpu09 gpu10 login1] <nil>
	// host list "gpu[10-8]", byte 5: the range "10-8" goes down; want the smaller number first
	// gpu[08-11],login1
}
