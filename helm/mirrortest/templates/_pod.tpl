{{- /*
The pod of a part: (dict "root" $ "part" NAME "it" VALUES "image" IMAGE "sides" [..] "args" [..]
"restart" POLICY "checksums" bool). `sides` are the clusters that it talks to.
*/}}
{{- define "mirrortest.pod" -}}
{{- $root := .root }}
{{- $v := .root.Values }}
{{- $serves := not (has .part (list "reconciliation" "nightly")) }}
metadata:
  labels:
    {{- include "mirrortest.selectorLabels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
    app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
    {{- with merge (dict) (default (dict) .it.podLabels) (default (dict) $v.commonLabels) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- toYaml (merge (dict) .it.podAnnotations $v.commonAnnotations (dict "kubectl.kubernetes.io/default-container" "mirrortest")) | nindent 4 }}
spec:
  serviceAccountName: {{ include "mirrortest.serviceAccountName" $root }}
  automountServiceAccountToken: {{ $v.serviceAccount.automountServiceAccountToken }}
  enableServiceLinks: false
  restartPolicy: {{ .restart }}
  terminationGracePeriodSeconds: {{ .it.terminationGracePeriodSeconds }}
  {{- with include "mirrortest.imagePullSecrets" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $v.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .it.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .it.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .it.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .it.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if .it.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- $match := dict "matchLabels" (merge (dict "app.kubernetes.io/component" .part) (include "mirrortest.selectorLabels" $root | fromYaml)) }}
    {{- range .it.topologySpreadConstraints }}
    - {{- toYaml (merge (dict) . (dict "labelSelector" $match)) | nindent 6 }}
    {{- end }}
  {{- end }}
  {{- with .it.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: mirrortest
      image: {{ include "mirrortest.image" (dict "root" $root "image" .image) }}
      imagePullPolicy: {{ .image.pullPolicy }}
      workingDir: /tmp
      args:
        {{- toYaml .args | nindent 8 }}
        {{- with .it.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        {{- if $serves }}
        - name: INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['{{ ternary "batch.kubernetes.io/job-completion-index" "apps.kubernetes.io/pod-index" (eq .it.kind "Job") }}']"}}
        {{- end }}
        - name: HOME
          value: /tmp
        - name: NO_COLOR
          value: "1"
        {{- with .it.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- $from := .it.extraEnvFrom }}
      {{- with $v.logs.credentials.existingSecret }}
      {{- $from = append $from (dict "secretRef" (dict "name" .)) }}
      {{- end }}
      {{- with $from }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $serves }}
      ports:
        - name: metrics
          containerPort: {{ $v.metrics.port }}
          protocol: TCP
      {{- include "mirrortest.probes" .it | trim | nindent 6 }}
      {{- end }}
      {{- with .it.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $v.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - name: tmp
          mountPath: /tmp
        {{- if not $v.logs.uri }}
        - name: logs
          mountPath: /var/lib/mirrortest/logs
        {{- else if $serves }}
        - name: spool
          mountPath: /var/lib/mirrortest/spool
        {{- end }}
        {{- range .sides }}
        {{- $side := index $v . }}
        {{- if $side.clientProperties.existingSecret }}
        - name: {{ . }}-properties
          mountPath: /etc/mirrortest/{{ . }}/properties
          readOnly: true
        {{- end }}
        {{- if $side.files.existingSecret }}
        - name: {{ . }}-files
          mountPath: /etc/mirrortest/{{ . }}/files
          readOnly: true
        {{- end }}
        {{- end }}
        {{- with .it.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- with .it.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {}
    {{- if not $v.logs.uri }}
    - name: logs
      persistentVolumeClaim:
        claimName: {{ include "mirrortest.logClaim" $root }}
    {{- else if and $serves (not (include "mirrortest.spoolClaimed" (dict "root" $root "it" .it))) }}
    - name: spool
      emptyDir: {}
    {{- end }}
    {{- range $name := .sides }}
    {{- $side := index $v $name }}
    {{- with $side.clientProperties.existingSecret }}
    - name: {{ $name }}-properties
      secret:
        secretName: {{ . }}
        items: [{key: {{ $side.clientProperties.key | quote }}, path: client.properties}]
    {{- end }}
    {{- with $side.files.existingSecret }}
    - name: {{ $name }}-files
      secret:
        secretName: {{ . }}
    {{- end }}
    {{- end }}
    {{- with .it.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* Whether a part's pods have a claim each for the spool: (dict "root" $ "it" VALUES) */}}
{{- define "mirrortest.spoolClaimed" -}}
{{- if and .root.Values.logs.uri .root.Values.logs.spool.persistent (eq .it.kind "StatefulSet") }}yes{{ end }}
{{- end }}

{{- /*
Startup: connected and found its place. Ready: partitions, or the schedule runs. Live: progress; who
makes none will not drain either, so it is not given the time.
*/}}
{{- define "mirrortest.probes" -}}
{{- $defaults := dict
  "startup" (dict "path" "/startup" "probe" (dict "periodSeconds" 2 "timeoutSeconds" 5 "failureThreshold" 300))
  "readiness" (dict "path" "/ready" "probe" (dict "periodSeconds" 5 "timeoutSeconds" 5 "failureThreshold" 2))
  "liveness" (dict "path" "/live" "probe" (dict "periodSeconds" 10 "timeoutSeconds" 5 "failureThreshold" 6 "terminationGracePeriodSeconds" 10))
}}
{{- range $name, $default := $defaults }}
{{- $own := default (dict) (index $.probes $name) }}
{{- if ne (toString $own.enabled) "false" }}
{{ $name }}Probe:
  httpGet:
    path: {{ $default.path }}
    port: metrics
  {{- toYaml (merge (dict) (omit $own "enabled") $default.probe) | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Options for a cluster: (dict "root" $ "side" SIDE "server" OPTION "config" OPTION); a YAML list */}}
{{- define "mirrortest.clusterArgs" -}}
{{- $side := index .root.Values .side }}
- {{ .server }}
- {{ $side.bootstrapServers | quote }}
{{- if $side.clientProperties.existingSecret }}
- {{ .config }}
- /etc/mirrortest/{{ .side }}/properties/client.properties
{{- end }}
{{- end }}

{{- define "mirrortest.workerArgs" -}}
{{- if gt (int .workers) 1 }}
- --workers
- {{ .workers | quote }}
{{- end }}
{{- end }}

{{- define "mirrortest.metricsArgs" -}}
- --metrics-port
- {{ .Values.metrics.port | quote }}
- --metrics-address
- {{ .Values.metrics.address | quote }}
{{- end }}

{{- define "mirrortest.logArgs" -}}
- --log-dir
- {{ include "mirrortest.logDir" . | quote }}
- --log-detail
- {{ .Values.logs.detail }}
{{- if .Values.logs.uri }}
- --log-spool
- /var/lib/mirrortest/spool
{{- end }}
{{- end }}

{{- /*
A part's StatefulSet or Job: the arguments of mirrortest.pod, and "first", the number of the first pod.
*/}}
{{- define "mirrortest.workload" -}}
{{- $root := .root }}
{{- $v := .root.Values }}
{{- $name := printf "%s-%s" (include "mirrortest.fullname" $root) .part }}
{{- $labels := merge (dict "app.kubernetes.io/component" .part) (include "mirrortest.selectorLabels" $root | fromYaml) }}
{{- if eq .it.kind "StatefulSet" }}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "mirrortest.metadata" (dict "root" $root "name" $name "part" .part "annotations" .it.annotations) | nindent 2 }}
spec:
  {{- with .it.updateStrategy }}
  updateStrategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  replicas: {{ .it.replicas }}
  serviceName: {{ $name }}
  podManagementPolicy: Parallel
  {{- with .first }}
  ordinals: {start: {{ . }}}
  {{- end }}
  selector:
    matchLabels:
      {{- toYaml $labels | nindent 6 }}
  template:
    {{- include "mirrortest.pod" (merge (dict "restart" "Always") .) | trim | nindent 4 }}
  {{- if include "mirrortest.spoolClaimed" (dict "root" $root "it" .it) }}
  volumeClaimTemplates:
    - metadata:
        name: spool
      spec:
        accessModes: [ReadWriteOnce]
        {{- with include "mirrortest.storageClass" $v.logs.spool.storageClassName | trim }}
        {{- . | nindent 8 }}
        {{- end }}
        resources: {requests: {storage: {{ $v.logs.spool.size | quote }}}}
  {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "mirrortest.metadata" (dict "root" $root "name" $name "part" .part) | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- toYaml $labels | nindent 4 }}
  ports:
    - {name: metrics, port: {{ $v.metrics.port }}, targetPort: metrics, protocol: TCP}
{{- else }}
{{- $pod := include "mirrortest.pod" (merge (dict "restart" "Never") .) }}
apiVersion: batch/v1
kind: Job
metadata:
  {{- /* A Job cannot be changed: one that is asked for otherwise is another. */}}
  {{- include "mirrortest.metadata" (dict "root" $root "name" (printf "%s-%s" $name ($pod | sha256sum | trunc 8)) "part" .part "annotations" .it.annotations) | nindent 2 }}
spec:
  completionMode: Indexed
  completions: {{ .it.replicas }}
  parallelism: {{ .it.replicas }}
  backoffLimitPerIndex: 6
  {{- include "mirrortest.verdictsEndIt" "FailIndex" | nindent 2 }}
  template:
    {{- $pod | trim | nindent 4 }}
{{- end }}
{{- /* A Job cannot be counted by a budget. */}}
{{- if and .it.podDisruptionBudget.enabled (eq .it.kind "StatefulSet") }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "mirrortest.metadata" (dict "root" $root "name" $name "part" .part) | nindent 2 }}
spec:
  maxUnavailable: {{ .it.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- toYaml $labels | nindent 6 }}
{{- end }}
{{- end }}

{{- /* What a Job does that is no load: (dict "it" VALUES "pod" what "mirrortest.pod" takes). */}}
{{- define "mirrortest.jobSpec" -}}
backoffLimit: {{ .it.backoffLimit }}
{{ include "mirrortest.verdictsEndIt" "FailJob" }}
{{- if gt (int .it.activeDeadlineSeconds) 0 }}
activeDeadlineSeconds: {{ .it.activeDeadlineSeconds }}
{{- end }}
template:
  {{- include "mirrortest.pod" .pod | trim | nindent 2 }}
{{- end }}

{{- /* A Job's failures: an error is tried again, a verdict or a usage error ends it: FailJob or FailIndex. */}}
{{- define "mirrortest.verdictsEndIt" -}}
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: {{ . }}
      onExitCodes: {containerName: mirrortest, operator: In, values: [2, 3, 99]}
{{- end }}
