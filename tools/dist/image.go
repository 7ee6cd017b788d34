package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes a container image for both architectures, as a tar file in the OCI layout, which
// skopeo, podman and docker can load. The image has golaunch and nothing else: the static binary,
// and the binary for glibc, which a pod's init container copies into another container (golaunch
// install DIR).
func (r *release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		image, err := r.imageFor(arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	dir := filepath.Join(r.stage, "image")
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	name := map[string]string{"org.opencontainers.image.ref.name": strings.ReplaceAll(r.version, "+", ".")}
	if err := at.AppendIndex(index, layout.WithAnnotations(name)); err != nil {
		return err
	}
	var files []file
	err = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		files = append(files, file{inside, 0o644, body})
		return err
	})
	if err != nil {
		return err
	}
	return r.write(r.name("_oci.tar"), func(w io.Writer) error { return tarred(w, files, r.at) })
}

func (r *release) imageFor(arch string) (v1.Image, error) {
	static, err := os.ReadFile(r.static[arch])
	if err != nil {
		return nil, err
	}
	plain, err := os.ReadFile(r.plain[arch])
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	if err := tarred(&content, []file{{"usr/bin/golaunch", 0o755, static}, {"usr/lib/golaunch/golaunch", 0o755, plain}}, r.at); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content.Bytes())), nil },
		tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layer)
	if err != nil {
		return nil, err
	}
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: r.at},
		// No user of a machine has this user ID. Because it is a number, Kubernetes can see that it is
		// not root's (runAsNonRoot).
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/golaunch"}, Env: []string{"PATH=/usr/bin"}, User: "65532:65532",
			Labels: map[string]string{"org.opencontainers.image.title": "golaunch", "org.opencontainers.image.version": r.version},
		},
		RootFS: config.RootFS, History: []v1.History{{Created: v1.Time{Time: r.at}, CreatedBy: "golaunch " + r.version}},
	})
}
