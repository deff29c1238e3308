// Command site makes the documentation a website of plain files: every page of
// docs, README, CONTRIBUTING and CHANGELOG, and what of the repository they link
// to. It fails, and names them, if links lead nowhere.
//
//	site [-o FOLDER]
//
// It runs in the root of the repository and prints the file to begin with.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("o", "dist/site", "folder for the site; a former one in it is replaced")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(".", *out); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stdout, filepath.Join(*out, "index.html"))
}

func run(root, out string) error {
	s, err := read(root)
	if err != nil {
		return err
	}
	if err := errors.Join(s.broken()...); err != nil {
		return err
	}
	return s.write(out)
}
