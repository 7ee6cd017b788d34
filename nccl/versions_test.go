package nccl_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golaunch/golaunch/nccl"
)

func TestVersions(t *testing.T) {
	if got, want := nccl.ReadVersions(p4d()), (nccl.Versions{
		Installer: "1.37.0", Libfabric: "1.16.0", Plugin: "1.5.0", Driver: "2.13.0g", Kernel: "5.10.228-219.884.amzn2.x86_64", Machine: "p4d.24xlarge",
	}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for name, c := range map[string]struct{ file, text, libfabric, plugin string }{
		// aws/aws-parallelcluster-cookbook#1882
		"rpm": {"opt/amazon/efa_installed_packages", "# EFA installer version: 1.22.0\n# Packages installed:\nefa-config-1.13-1.el8.noarch " +
			"libfabric-aws-1.17.0-1.el8.x86_64 libfabric-aws-devel-1.17.1-1.el8.x86_64 openmpi40-aws-4.1.5-1.x86_64\n", "1.17.0", ""},
		// aws/libfabric#3
		"first":     {"opt/amazon/efa_installed_packages", "efa_1.3.0-1.amzn1_amd64 libfabric1_1.8.0amzn1.0_amd64\n", "1.8.0", ""},
		"ngc":       {"opt/amazon/efa_installed_packages", "libnccl-ofi-ngc-v2_1.16.0-1_amd64\n", "", "1.16.0"},
		"pkgconfig": {"opt/amazon/efa/lib64/pkgconfig/libfabric.pc", "Name: libfabric\nVersion: 1.22.0amzn4.0\nRequires:\n", "1.22.0amzn4.0", ""},
		"library": {
			"opt/aws-ofi-nccl/lib/libnccl-net.so", "\x7fELF\x00aws-ofi-nccl \x00NET/OFI Initializing aws-ofi-nccl 1.7.3-aws\x00",
			"", "1.7.3-aws",
		},
		"of git":     {"opt/aws-ofi-nccl/lib/libnccl-net.so", "NET/OFI Initializing aws-ofi-nccl git-6e504db\x00", "", ""},
		"so's name":  {"opt/amazon/efa/lib/libfabric.so.1.19.0", "", "", ""},
		"no version": {"opt/amazon/efa_installed_packages", "libfabric-aws_ libnccl-ofi- libfabric1-aws_x.y", "", ""},
	} {
		v := nccl.ReadVersions(fstest.MapFS{c.file: {Data: []byte(c.text)}})
		if v.Libfabric != c.libfabric || v.Plugin != c.plugin {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// FuzzVersions reads any text in place of versions. The result is empty, or one word that begins
// with a number.
func FuzzVersions(f *testing.F) {
	f.Add("# EFA installer version: 1.37.0\nlibfabric1-aws_1.16.0~amzn3.0_amd64 libnccl-ofi_1.13.2-1_amd64\n")
	f.Add("Version: 2.1.0amzn3.0\naws-ofi-nccl 1.7.3-aws")
	f.Fuzz(func(t *testing.T, text string) {
		file := &fstest.MapFile{Data: []byte(text)}
		v := nccl.ReadVersions(fstest.MapFS{
			"opt/amazon/efa_installed_packages": file, "opt/amazon/efa/lib/pkgconfig/libfabric.pc": file, "opt/aws-ofi-nccl/lib/libnccl-net.so": file,
		})
		for _, s := range []string{v.Installer, v.Libfabric, v.Plugin} {
			if s != "" && (s[0] < '0' || s[0] > '9' || len(strings.Fields(s)) != 1) {
				t.Errorf("%q in %+v", s, v)
			}
		}
		own := nccl.Facts{Fabric: nccl.EFA, Versions: v}.Own()
		if again, ok := nccl.ParseAgreement(own.String()); !ok || again != own {
			t.Errorf("%+v is written as %q, which is read as %+v", own, own, again)
		}
	})
}
