package dl

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const job = `55d0c8a00000-55d0c8a01000 r--p 00000000 103:02 1835061                   /usr/bin/python3.12
55d0c9c00000-55d0c9d00000 rw-p 00000000 00:00 0                          [heap]
7f1000000000-7f1000100000 rw-p 00000000 00:00 0 
7f2000000000-7f2000100000 rw-s 00000000 00:01 2097156                    /memfd:cuda (deleted)
7f3000000000-7f3000100000 rw-s 00000000 00:0e 12                         anon_inode:[perf_event]
7f3100000000-7f3100100000 rw-p 00000000 00:00 0                          [anon:a /libnccl.so.2.9.9]
7f4000000000-7f4001000000 r--p 00000000 103:02 9                         /opt/my env/libnccl.so.2
7f4001000000-7f4002000000 r-xp 01000000 103:02 9                         /opt/my env/libnccl.so.2
7f5000000000-7f5001000000 r-xp 00000000 103:02 10                        /usr/lib/libnccl.so.2.30.7 (deleted)
7f6000000000-7f6001000000 r-xp 00000000 103:02 11                        /opt/amazon/ofi-nccl/lib/libnccl-net.so
7f6100000000-7f6101000000 r-xp 00000000 103:02 12                        /opt/libnccl.so.2/readme
7f7000000000-7f7000001000 r--p 00000000 103:02 13                        /usr/lib/libnccl.so
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`

func TestLibraries(t *testing.T) {
	for name, c := range map[string]struct {
		maps string
		want []string
	}{
		"job":     {job, []string{"/opt/my env/libnccl.so.2", "/usr/lib/libnccl.so", "/usr/lib/libnccl.so.2.30.7"}},
		"without": {"55d0c8a00000-55d0c8a01000 r--p 00000000 103:02 1835061 /usr/bin/cat\n", nil},
		"zombie":  {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := parse(strings.NewReader(c.maps))
			if got := libraries(all); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("found %q, %v", got, err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	all, err := parse(strings.NewReader(job))
	want := []mapping{
		{0x55d0c8a00000, 0x55d0c8a01000, "/usr/bin/python3.12"},
		{0x7f2000000000, 0x7f2000100000, "/memfd:cuda"},
		{0x7f4000000000, 0x7f4001000000, "/opt/my env/libnccl.so.2"},
	}
	if err != nil || len(all) != 8 || !reflect.DeepEqual(all[:3], want) {
		t.Errorf("parsed %+v, %v", all, err)
	}
	for _, garbage := range []string{"x-y r 0 0:0 1 /lib", "1 r 0 0:0 1 /lib", " a b c d /lib", "fffffffffffffffff-0 a b c d /lib"} {
		if all, err := parse(strings.NewReader(garbage)); err == nil {
			t.Errorf("%q is %+v", garbage, all)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(job)
	f.Add("1-2 r 0 0 0 /libnccl.so.2 (deleted)")
	f.Fuzz(func(t *testing.T, text string) {
		// Garbage may cause an error, but the results before it must still be right.
		all, _ := parse(strings.NewReader(text))
		for _, m := range all {
			if !strings.HasPrefix(m.path, "/") || !strings.Contains(text, m.path) || strings.Contains(m.path, "\n") {
				t.Errorf("path %q from %q", m.path, text)
			}
		}
		if found := libraries(all); !slices.IsSorted(found) || len(slices.Compact(slices.Clone(found))) != len(found) {
			t.Errorf("libraries %q", found)
		}
	})
}

func TestLoadedInNoProcess(t *testing.T) {
	if _, err := Loaded(math.MaxInt32); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
	if found, err := Loaded(os.Getpid()); err != nil || len(found) != 0 {
		t.Errorf("this process: %q, %v", found, err)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Loaded(ended.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that ended: %v", err)
	}
}
