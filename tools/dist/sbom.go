package main

import (
	"io"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// sbom lists the contents of the binaries, which the go command has recorded in them, in the format
// of CycloneDX.
func (r *release) sbom() error {
	module := func(path, version string) cdx.Component {
		purl := "pkg:golang/" + path + "@" + version
		return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
	}
	main := module(r.info.Main.Path, r.info.Main.Version)
	main.Type = cdx.ComponentTypeApplication
	parts := []cdx.Component{module("std", r.info.GoVersion)}
	needs := []string{parts[0].BOMRef}
	for _, d := range r.deps {
		if d.Replace != nil {
			d = d.Replace
		}
		parts = append(parts, module(d.Path, d.Version))
		needs = append(needs, parts[len(parts)-1].BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: r.at.UTC().Format(time.RFC3339), Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &needs}}
	return r.write(r.name(".cdx.json"), func(w io.Writer) error {
		return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	})
}
