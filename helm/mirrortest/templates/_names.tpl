{{- define "mirrortest.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* At most 37 letters: `-reconciliation` follows, and a CronJob's name ends at 52. */}}
{{- define "mirrortest.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 37 | trimSuffix "-" }}
{{- else }}
{{- $name := include "mirrortest.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 37 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 37 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "mirrortest.selectorLabels" -}}
app.kubernetes.io/name: {{ include "mirrortest.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "mirrortest.labels" -}}
{{ include "mirrortest.selectorLabels" . }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: mirrortest
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Metadata of a manifest: (dict "root" $ "name" NAME "part" PART "labels" {} "annotations" {}) */}}
{{- define "mirrortest.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- $part := ternary (dict) (dict "app.kubernetes.io/component" .part) (empty .part) }}
  {{- toYaml (merge (dict) (default (dict) .labels) $part (include "mirrortest.labels" .root | fromYaml)) | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "mirrortest.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "mirrortest.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* (dict "root" $ "image" IMAGE) */}}
{{- define "mirrortest.image" -}}
{{- $registry := default .image.registry .root.Values.global.imageRegistry }}
{{- $name := ternary (printf "%s/%s" (trimSuffix "/" $registry) .image.repository) .image.repository (ne $registry "") }}
{{- if .image.digest }}
{{- printf "%s@%s" $name .image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{- /* Names of the secrets for the registry, a YAML list. */}}
{{- define "mirrortest.pullSecretNames" -}}
{{- $names := list }}
{{- range concat .Values.global.imagePullSecrets .Values.imagePullSecrets }}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "string" . | ternary dict .) "name")) }}
{{- end }}
{{- toYaml (uniq $names) }}
{{- end }}

{{- define "mirrortest.imagePullSecrets" -}}
{{- with include "mirrortest.pullSecretNames" . | fromYamlArray }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end }}

{{- define "mirrortest.logClaim" -}}
{{- default (printf "%s-logs" (include "mirrortest.fullname" .)) .Values.logs.volume.existingClaim }}
{{- end }}

{{- define "mirrortest.logDir" -}}
{{- default "/var/lib/mirrortest/logs" .Values.logs.uri }}
{{- end }}

{{- /* A claim's class: empty leaves it to the cluster, "-" is none. */}}
{{- define "mirrortest.storageClass" -}}
{{- if eq . "-" }}
storageClassName: ""
{{- else if . }}
storageClassName: {{ . | quote }}
{{- end }}
{{- end }}
