// Generate writes the Go code of a2a.proto into the folder that it is given, or
// with -check says which files are not as it would write them. It needs no
// protoc: the definition is compiled in Go, and the code is written by the two
// official plugins, whose versions go.mod pins.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"

	// The definitions that a2a.proto imports, in the form that their modules
	// hold them.
	_ "google.golang.org/genproto/googleapis/api/annotations"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
)

const (
	source    = "a2a.proto"
	goPackage = "github.com/parley-project/parley/internal/bridge/a2a/a2apb;a2apb"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if a file is not current")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: generate [-check] FOLDER")
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string, check bool) error {
	files, err := compile(ctx, folder)
	if err != nil {
		return err
	}
	plugins := []struct{ name, parameter string }{
		{"protoc-gen-go", "paths=source_relative,M" + source + "=" + goPackage},
		{"protoc-gen-go-grpc", "paths=source_relative,M" + source + "=" + goPackage},
	}
	var stale error
	for _, p := range plugins {
		generated, err := plugin(ctx, p.name, &pluginpb.CodeGeneratorRequest{
			FileToGenerate: []string{source}, Parameter: new(p.parameter), ProtoFile: files,
		})
		if err != nil {
			return err
		}
		for _, f := range generated {
			stale = errors.Join(stale, put(filepath.Join(folder, f.GetName()), []byte(f.GetContent()), check))
		}
	}
	return stale
}

// compile gives a2a.proto and everything that it imports, in the order in which
// plugins want them: the imported before the importing.
func compile(ctx context.Context, folder string) ([]*descriptorpb.FileDescriptorProto, error) {
	linked := protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		d, err := protoregistry.GlobalFiles.FindFileByPath(path)
		return protocompile.SearchResult{Desc: d}, err
	})
	compiler := protocompile.Compiler{
		Resolver:       protocompile.CompositeResolver{&protocompile.SourceResolver{ImportPaths: []string{folder}}, linked},
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, source)
	if err != nil {
		return nil, err
	}
	var all []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	add(compiled[0])
	return all, nil
}

// plugin runs one code generator, a tool of this module.
func plugin(ctx context.Context, name string, req *pluginpb.CodeGeneratorRequest) ([]*pluginpb.CodeGeneratorResponse_File, error) {
	in, err := proto.Marshal(req)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", name)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if resp.Error != nil {
		return nil, fmt.Errorf("%s: %s", name, resp.GetError())
	}
	return resp.GetFile(), nil
}

// put writes a file, or compares it.
func put(path string, content []byte, check bool) error {
	if !check {
		return os.WriteFile(path, content, 0o644)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
		return fmt.Errorf("%s is not current: run go generate in its folder", filepath.Base(path))
	}
	return nil
}
