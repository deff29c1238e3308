package main

import (
	"errors"
	"fmt"
	"html"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxSource bounds a source file that is shown, in bytes; what is larger is named
// only.
const maxSource = 1 << 20

// site is all pages by their paths in the repository.
type site struct {
	root   fs.FS
	pages  map[string]*page
	groups []group
	wanted []string
}

// group is a part of the navigation: the pages that everything else is reached from.
type group struct {
	Name string
	// Folded: its pages are shown when somebody asks for them.
	Folded bool
	Pages  []*page
}

// page is one file of the repository, or a folder, as HTML.
type page struct {
	site  *site
	path  string
	Title string
	body  []byte
	ids   map[string]bool
	links []reference
}

// reference is a link to another page, or to a place in one.
type reference struct{ text, path, fragment string }

// read makes the pages of the repository in root.
func read(root string) (*site, error) {
	s := &site{root: os.DirFS(root), pages: map[string]*page{}}
	for _, g := range []struct {
		group
		patterns []string
	}{
		{group{Name: "Start"}, []string{"README.md"}},
		{group{Name: "Guides"}, []string{"docs/*.md"}},
		{group{Name: "Project"}, []string{"CONTRIBUTING.md", "CHANGELOG.md"}},
		{group{Name: "Decisions", Folded: true}, []string{"docs/decisions/*.md"}},
	} {
		if err := s.begin(g.group, g.patterns); err != nil {
			return nil, err
		}
	}
	for len(s.wanted) > 0 {
		next := s.wanted[0]
		s.wanted = s.wanted[1:]
		if err := s.add(next); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// begin adds a group: the files of each pattern in their order.
func (s *site) begin(g group, patterns []string) error {
	for _, pattern := range patterns {
		names, err := fs.Glob(s.root, pattern)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return fmt.Errorf("there is no %s: run it in the root of the repository", pattern)
		}
		for _, name := range names {
			if err := s.add(name); err != nil {
				return err
			}
			g.Pages = append(g.Pages, s.pages[name])
		}
	}
	s.groups = append(s.groups, g)
	return nil
}

// add makes the page of a file or folder, if there is one.
func (s *site) add(name string) error {
	if s.pages[name] != nil {
		return nil
	}
	info, err := fs.Stat(s.root, name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) { // beyond the root
		return nil // the link is broken, which is said in the end
	}
	if err != nil {
		return err
	}
	p := &page{site: s, path: name, Title: name, ids: map[string]bool{}}
	s.pages[name] = p
	switch {
	case info.IsDir():
		err = s.list(p)
	case info.Size() > maxSource:
		p.body = fmt.Appendf(nil, "<h1>%s</h1>\n<p>%d bytes, too many to show.</p>\n", html.EscapeString(name), info.Size())
	default:
		var text []byte
		if text, err = fs.ReadFile(s.root, name); err != nil {
			break
		}
		if path.Ext(name) == ".md" {
			err = p.markdown(text)
			break
		}
		p.source(text)
	}
	for _, l := range p.links {
		if path.Ext(p.path) == ".md" {
			s.wanted = append(s.wanted, l.path)
		}
	}
	return err
}

// list makes the page of a folder: the files in it, which have pages, too, and the
// names of its folders.
func (s *site) list(p *page) error {
	entries, err := fs.ReadDir(s.root, p.path)
	if err != nil {
		return err
	}
	b := fmt.Appendf(nil, "<h1>%s</h1>\n<ul>\n", html.EscapeString(p.path))
	for _, e := range entries {
		name := html.EscapeString(e.Name())
		if e.IsDir() {
			b = fmt.Appendf(b, "<li>%s/</li>\n", name)
			continue
		}
		target := path.Join(p.path, e.Name())
		p.links = append(p.links, reference{text: e.Name(), path: target})
		s.wanted = append(s.wanted, target)
		b = fmt.Appendf(b, "<li><a href=%q>%s</a></li>\n", p.to(target, ""), name)
	}
	p.body = append(b, "</ul>\n"...)
	return nil
}

// source makes the page of a file that is no Markdown.
func (p *page) source(text []byte) {
	shown := "This is no text."
	if utf8.Valid(text) {
		shown = string(text)
	}
	p.body = fmt.Appendf(nil, "<h1>%s</h1>\n<pre><code>%s</code></pre>\n", html.EscapeString(p.path), html.EscapeString(shown))
}

// file is where the page of a file or folder stands in the site.
func (s *site) file(name string) string {
	info, err := fs.Stat(s.root, name)
	switch {
	case name == "README.md":
		return "index.html"
	case err == nil && info.IsDir():
		return path.Join(name, "index.html")
	case path.Ext(name) == ".md":
		return strings.TrimSuffix(name, ".md") + ".html"
	}
	return name + ".html"
}

// to is the URL of another page, or of a place in it, from this one.
func (p *page) to(name, fragment string) string {
	if name == p.path && fragment != "" {
		return (&url.URL{Fragment: fragment}).String()
	}
	up := strings.Repeat("../", strings.Count(p.site.file(p.path), "/"))
	return (&url.URL{Path: up + p.site.file(name), Fragment: fragment}).String()
}

// To is the URL of another page from this one.
func (p *page) To(other *page) string { return p.to(other.path, "") }

// broken are the links that lead nowhere.
func (s *site) broken() []error {
	var all []error
	for _, name := range s.sorted() {
		for _, l := range s.pages[name].links {
			switch to := s.pages[l.path]; {
			case to == nil:
				all = append(all, fmt.Errorf("%s: the link %q leads to %s, which is not there", name, l.text, l.path))
			case l.fragment != "" && !to.ids[l.fragment]:
				all = append(all, fmt.Errorf("%s: the link %q leads to #%s, which %s does not have", name, l.text, l.fragment, l.path))
			}
		}
	}
	return all
}

func (s *site) sorted() []string { return slices.Sorted(maps.Keys(s.pages)) }

// write replaces a former site by this one. A folder that holds anything else it
// leaves alone.
func (s *site) write(out string) error {
	held, err := os.ReadDir(out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(out, "index.html")); err != nil && len(held) > 0 {
		return fmt.Errorf("%s holds something else than a site: name an empty folder", out)
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	frame, err := newFrame()
	if err != nil {
		return err
	}
	// The page to begin with first: by it a site that was not finished is known as one.
	for _, name := range slices.Concat([]string{"README.md"}, s.sorted()) {
		at := filepath.Join(out, filepath.FromSlash(s.file(name)))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		text, err := frame.around(s.pages[name])
		if err != nil {
			return err
		}
		if err := os.WriteFile(at, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
