package workspace

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// hostile packs headers with a content of their size.
func hostile(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeXGlobalHeader, Format: tar.FormatPAX, PAXRecords: map[string]string{comment: format}})
	for _, h := range headers {
		if err == nil {
			err = w.WriteHeader(&h)
		}
		if err == nil {
			_, err = w.Write(make([]byte, h.Size))
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestHostile checks that an archive makes no file outside its directory.
func TestHostile(t *testing.T) {
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	file := func(name string) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 3, Mode: 0o644}
	}
	for name, archive := range map[string][]byte{
		"nothing":         nil,
		"noise":           []byte(strings.Repeat("x", 2048)),
		"upwards":         hostile(t, file("../x")),
		"absolute":        hostile(t, file("/x")),
		"inner dots":      hostile(t, tar.Header{Typeflag: tar.TypeDir, Name: "a/", Mode: 0o755}, file("a/../../x")),
		"the top":         hostile(t, tar.Header{Typeflag: tar.TypeDir, Name: "./"}),
		"absolute link":   hostile(t, link("l", "/etc")),
		"link upwards":    hostile(t, link("l", "..")),
		"over a link":     hostile(t, link("l", "x"), file("l/x")),
		"hard link":       hostile(t, tar.Header{Typeflag: tar.TypeLink, Name: "l", Linkname: "/etc/passwd"}),
		"device":          hostile(t, tar.Header{Typeflag: tar.TypeChar, Name: "d", Devmajor: 1, Devminor: 3}),
		"FIFO":            hostile(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p"}),
		"twice":           hostile(t, file("x"), file("x")),
		"over a file":     hostile(t, file("x"), file("x/y")),
		"torn":            hostile(t, file("x"))[:2*512+100],
		"another format":  bytes.Replace(hostile(t), []byte(format), []byte("golaunch-workspace-2"), 1),
		"larger than all": bomb(t),
	} {
		base := t.TempDir()
		dir := filepath.Join(base, "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := Unpack(bytes.NewReader(archive), int64(len(archive)), root); err == nil {
			t.Errorf("%s: it was unpacked: %s", name, list(t, dir))
		} else {
			t.Log(name+":", err)
		}
		root.Close()
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Errorf("%s: files outside: %v", name, entries)
		}
	}
}

// bomb is an archive of some kilobytes with a file of a terabyte, sparse as GNU's tar writes it.
func bomb(t testing.TB) []byte {
	t.Helper()
	b := hostile(t, tar.Header{Typeflag: tar.TypeReg, Name: "bomb", Format: tar.FormatGNU})
	header := b[len(b)-3*512 : len(b)-2*512]
	header[156] = 'S'
	copy(header[386:], "00000000000\x0000000000000\x00")
	copy(header[483:], "17777777777777\x00"[:12])
	sum := int64(0)
	copy(header[148:156], "        ")
	for _, c := range header {
		sum += int64(c)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return b
}

// FuzzUnpack checks that no archive makes a file outside its directory, or more bytes than it has.
func FuzzUnpack(f *testing.F) {
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeReg, Name: "a", Size: 5, Mode: 0o600}, tar.Header{Typeflag: tar.TypeSymlink, Name: "b", Linkname: "a"}))
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeDir, Name: "d/", Mode: 0o755}, tar.Header{Typeflag: tar.TypeReg, Name: "d/x", Size: 600, Mode: 0o755}))
	f.Add(hostile(f, tar.Header{Typeflag: tar.TypeReg, Name: "../x", Size: 1}))
	f.Add(bomb(f))
	f.Fuzz(func(t *testing.T, archive []byte) {
		base := t.TempDir()
		dir := filepath.Join(base, "d")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		defer removeAll(dir)
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_ = Unpack(bytes.NewReader(archive), int64(len(archive)), root)
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Fatalf("files outside: %v", entries)
		}
		var total int64
		_ = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
			if err == nil && e.Type().IsRegular() {
				if info, err := e.Info(); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
		if total > int64(len(archive)) {
			t.Fatalf("%d bytes from an archive of %d", total, len(archive))
		}
	})
}
