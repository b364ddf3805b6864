package blobfake

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

type listing struct {
	XMLName    xml.Name `xml:"EnumerationResults"`
	Prefix     string
	Marker     string
	MaxResults int
	Blobs      struct {
		Blob []listed
	}
	NextMarker string
}

type listed struct {
	Name       string
	Deleted    bool
	Snapshot   string
	Properties listedProperties
	Metadata   *metadataXML
}

type listedProperties struct {
	Created       string `xml:"Creation-Time"`
	Modified      string `xml:"Last-Modified"`
	Etag          string
	Length        int    `xml:"Content-Length"`
	Type          string `xml:"BlobType"`
	Sequence      string `xml:"x-ms-blob-sequence-number,omitempty"`
	LeaseStatus   string
	LeaseState    string
	LeaseDuration string `xml:",omitempty"`
}

type metadataXML map[string]string

func (m metadataXML) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := e.EncodeElement(m[k], xml.StartElement{Name: xml.Name{Local: k}}); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}

// list answers one page of the blobs whose names start with a prefix, in the order of their names.
func (c *call) list() *Error {
	q := c.r.URL.Query()
	size := c.PageSize
	if text := q.Get("maxresults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return &Error{http.StatusBadRequest, "OutOfRangeQueryParameterValue"}
		}
		size = min(size, n)
	}
	out := listing{Prefix: q.Get("prefix"), Marker: q.Get("marker"), MaxResults: size}
	withMetadata := strings.Contains(q.Get("include"), "metadata")
	for _, name := range slices.Sorted(maps.Keys(c.containers[c.container])) {
		if !strings.HasPrefix(name, out.Prefix) || name < out.Marker {
			continue
		}
		if len(out.Blobs.Blob) == size {
			out.NextMarker = name
			break
		}
		b := c.containers[c.container][name]
		b.held.update(c.now)
		out.Blobs.Blob = append(out.Blobs.Blob, describeListed(name, b, withMetadata))
	}
	c.w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(c.w, xml.Header) // a client that has gone away needs no answer
	_ = xml.NewEncoder(c.w).Encode(out)
	return nil
}

func describeListed(name string, b *blob, withMetadata bool) listed {
	state, status, duration := b.held.describe()
	l := listed{Name: name, Properties: listedProperties{
		Created: b.created.UTC().Format(http.TimeFormat), Modified: b.modified.UTC().Format(http.TimeFormat),
		Etag: strings.Trim(b.etag, `"`), Length: len(b.content), Type: b.kind,
		LeaseStatus: status, LeaseState: state, LeaseDuration: duration,
	}}
	if b.kind == "PageBlob" {
		l.Properties.Sequence = strconv.FormatInt(b.sequence, 10)
	}
	if withMetadata {
		m := metadataXML(b.metadata)
		l.Metadata = &m
	}
	return l
}

// getTags answers a blob's tags.
func (c *call) getTags() *Error {
	b := c.find()
	if b == nil {
		return errNoBlob
	}
	type tag struct{ Key, Value string }
	var out struct {
		XMLName xml.Name `xml:"Tags"`
		TagSet  struct{ Tag []tag }
	}
	for _, k := range slices.Sorted(maps.Keys(b.tags)) {
		out.TagSet.Tag = append(out.TagSet.Tag, tag{k, b.tags[k]})
	}
	c.w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(c.w, xml.Header)
	_ = xml.NewEncoder(c.w).Encode(out)
	return nil
}
