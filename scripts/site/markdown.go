package main

import (
	"bytes"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// markdown makes the page of a Markdown file.
func (p *page) markdown(source []byte) error {
	md := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	doc := md.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(p))))
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 && p.Title == p.path {
				p.Title = plain(n, source)
			}
		case *ast.Link:
			return ast.WalkContinue, p.link(n, source)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, source, doc); err != nil {
		return fmt.Errorf("%s: %w", p.path, err)
	}
	p.body = b.Bytes()
	return nil
}

// link has a link to another file of the repository lead to its page.
func (p *page) link(n *ast.Link, source []byte) error {
	u, err := url.Parse(string(n.Destination))
	if err != nil {
		return fmt.Errorf("the link %q: %w", plain(n, source), err)
	}
	if u.IsAbs() || u.Host != "" {
		return nil
	}
	target := p.path
	if u.Path != "" {
		target = path.Join(path.Dir(p.path), u.Path)
	}
	p.links = append(p.links, reference{plain(n, source), target, u.Fragment})
	n.Destination = []byte(p.to(target, u.Fragment))
	return nil
}

// plain is the text of a node without its marks.
func plain(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(c ast.Node, entering bool) (ast.WalkStatus, error) { // the function gives no error
		if t, ok := c.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// Generate implements [parser.IDs]: the id of a heading is the one that GitHub gives
// it, since that is what the links in the documents are written for.
func (p *page) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsNumber(r):
			b.WriteRune(r)
		}
	}
	id := b.String()
	for n := 1; p.ids[id]; n++ {
		id = b.String() + "-" + strconv.Itoa(n)
	}
	p.ids[id] = true
	return []byte(id)
}

// Put implements [parser.IDs].
func (p *page) Put(value []byte) { p.ids[string(value)] = true }
